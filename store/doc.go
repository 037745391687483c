// Package store opens checkpoints of large models and decodes their tensors
// lazily: each file is mapped once, a handle finds its bytes on first use,
// decoding runs block-parallel, and recently decoded tensors stay in a cache
// with a byte budget that it keeps: only a single tensor larger than all of it
// is let in above it, alone, unless Config.Strict says otherwise.
//
//	st, err := store.Open(ctx, "/models/llama-70b-bnb-4bit")
//	if err != nil { … }
//	defer st.Close()
//	for layer, err := range st.Layers(ctx) {
//		if err != nil { … }
//		leases, err := layer.Acquire(ctx, tensor.BF16)
//		…
//		leases.Release()
//	}
//
// # Whose bytes
//
// A Lease lends bytes that belong to the store: they are read-only, and valid
// until Release. Every other method writes to memory that the caller owns, or,
// like Tiles, says otherwise. Decoded elements are in the byte order of the
// host; stored bytes (Raw) are as they are on disk.
//
// # Caveats
//
// Plain tensors are lent as views of the mapped file. If another process
// shortens the file meanwhile, touching such a view faults: use Lease.Do, which
// turns the fault into ErrTruncated, or set Config.CopyPlain. A file that is
// rewritten in place while it is open is not detected; replace checkpoints by
// rename. Only whole-file truncation is noticed, after each decode.
//
// A caller that holds leases and waits for more may wait for itself: acquire
// what is needed together with AcquireMany, or set Config.Full to "fail".
//
// # Concurrency
//
// A Store and its handles are safe for concurrent use. Results are the same,
// bit for bit, for every number of workers and every kernel.
package store
