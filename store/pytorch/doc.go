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
// of the pickle fail Read. Errors of the reader have no rule, and those of a
// file that became shorter have rule IO-001: trying again may help.
//
// The CRC of a stored zip entry is not checked: that would read all of it.
// Of two entries with one name neither is used. Every offset in an archive is
// checked against its local header, whose position of the data counts.
//
// To read the source, begin with Read, follow it into torchzip.go (on zip.go,
// zipentry.go and inflate.go), legacy.go or tar.go, from there into the machine
// (unpickle.go with its table in opcodes.go, and build.go and rebuild.go for
// what it makes), and end with walk.go, which names what was made, and
// quantgroup.go and quantstate.go, which recognise bitsandbytes in it.
package pytorch
