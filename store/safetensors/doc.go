// Package safetensors reads and writes the headers of safetensors files and
// the index of sharded checkpoints: bytes in, descriptors out. It never maps a
// file and never touches a tensor's bytes.
//
// A file is a little-endian uint64 N, N bytes of JSON that describe each
// tensor's dtype, shape and byte range, then the tensors. A header is accepted
// only as a whole. Where implementations differ, this one decides:
//
//   - N is at most 100,000,000 and the JSON begins with '{', as the format's
//     description demands; the Rust crate tolerates white space before it.
//     After the closing brace only spaces may follow.
//   - The tensors tile the rest of the file: no overlap, no hole, no trailing
//     bytes. Their order in the header is free. Alignment is not demanded:
//     files by old writers have none.
//   - An unknown dtype refuses the file, as the crate does: without the
//     element size nothing after it can be checked.
//   - A name, or a key of one entry, that occurs twice refuses the file (the
//     crate keeps the last). So does a key that differs from dtype, shape or
//     data_offsets only by case, since readers that fold case would disagree
//     with those that do not. Other unknown keys are ignored, as the crate
//     ignores them.
//   - Dimensions and offsets are written as plain decimal integers and fit an
//     int64, and so does the product of the dimensions that are not zero.
//   - __metadata__ maps strings to strings, or is null, or is absent.
//
// Two parsers share these rules. The complete one (complete.go) is the
// specification and words every error. The scanner (scan.go) knows only the
// layout that writers produce; whatever else it meets, it leaves to the other.
package safetensors
