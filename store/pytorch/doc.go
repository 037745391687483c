// Package pytorch reads what torch.save and torch.jit.save write (.pt, .pth,
// .bin) and describes the tensors in it: where their bytes are in the file, and
// how to view them. The container is told by content, never by name.
//
// Files are taken to be hostile. The pickle inside is interpreted as data by a
// machine of its own: nothing is executed, imported or resolved, and a file
// that names a function whose only use is harm (os.system, builtins.eval, …) is
// refused even if it never calls it. Every size is a claim that is compared
// with the bytes that are there before anything is allocated for it. What
// opening a file costs in memory is bounded by Limits and by a small multiple
// of the size of the pickle, not of the storages.
//
// Errors are of type *rule.Error, with Path left empty. A fault of one tensor
// (bad geometry, a missing or damaged record, a type that is not read) is kept
// in Tensor.Err and leaves its neighbours readable; faults of the container or
// of the pickle fail Read.
package pytorch
