package store

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"nibble/mmap"
	"nibble/quant"
)

// DefaultCacheBudget is the budget of a zero Config, in bytes.
const DefaultCacheBudget = 1 << 30

// NoCache as a CacheBudget keeps nothing between two uses: each decoded tensor
// lives as long as its leases, and is the only one. AcquireMany and
// Layer.Acquire of several, which want them together, are ErrBudget.
const NoCache = -1

// Config tunes a Store. The zero value is sane; each field says what zero
// means. Validate reports every field that is out of range.
type Config struct {
	// CacheBudget bounds the decoded bytes that the store holds: cached,
	// leased, in flight, buffers of tiles, and memory free for reuse. Bytes; 0
	// means DefaultCacheBudget, NoCache means none. A single tensor that is
	// larger is let in alone (see Strict). Not counted are the scales that
	// Packed hands out, the few MiB that each worker needs to read files that
	// are not mapped, and the 4 KiB of a tile under a budget below that.
	CacheBudget int64
	// Workers is how many goroutines decode at once, over all callers of the
	// store. 0 means GOMAXPROCS.
	Workers int
	// Policy chooses what leaves the cache first: lru, sweep, 2q or auto. ""
	// means lru.
	Policy string
	// Prefetch is how many layers ahead Layers decodes while the caller works
	// on the current one. 0 means none.
	Prefetch int
	// Full says what Acquire does when the budget is taken by others: wait
	// for bytes, in order of arrival, or fail at once with ErrBudget. "" means
	// wait.
	Full string
	// Strict makes a tensor larger than the whole budget an ErrBudget. Without
	// it such a tensor is decoded once nothing else is charged.
	Strict bool
	// SourcePages says what becomes of the page cache behind the bytes that
	// were decoded: keep leaves it to the system, drop gives it back at once.
	// "" means keep.
	SourcePages string
	// Backend is how files are read: mmap, pread, or auto (mmap where the file
	// system is local and can map, else pread). "" means auto.
	Backend string
	// CopyPlain makes plain tensors charged copies instead of views of the
	// mapping, for callers who cannot run under Lease.Do.
	CopyPlain bool
	// Kernels is the highest level of decoding kernels to use: auto, or a name
	// that quant.Kernels lists. It holds for the whole process. "" leaves it as
	// it is: auto, unless somebody chose.
	Kernels string
	// Descriptors bounds the file descriptors that the store keeps open. 0
	// means a quarter of RLIMIT_NOFILE.
	Descriptors int
	// Limits bounds what a torch file may ask of its reader.
	Limits Limits
}

// Limits bounds what a torch file may ask of its reader, beyond what its size
// explains. A file that exceeds one is refused with ErrLimit. 0 means the
// default.
type Limits struct {
	Depth       int   // nested containers; default 1000
	Memory      int64 // bytes that the objects of a pickle take; default 4 GiB
	Records     int64 // entries of a zip archive; default 1,048,576
	PickleBytes int64 // size of a compressed pickle, inflated, in bytes; default 256 MiB
}

// choices lists what each word-valued field may say; the first is the default.
var choices = map[string][]string{
	"policy":       {"lru", "sweep", "2q", "auto"},
	"full":         {"wait", "fail"},
	"source_pages": {"keep", "drop"},
	"backend":      {"auto", "mmap", "pread"},
}

// Validate reports all fields that are out of range, joined in one error.
func (c Config) Validate() error {
	var errs []error
	number := func(name string, v, least int64) {
		if v < least {
			errs = append(errs, fmt.Errorf("%s is %d, want at least %d", name, v, least))
		}
	}
	word := func(name, v string, ok []string) {
		if v != "" && !slices.Contains(ok, v) {
			errs = append(errs, fmt.Errorf("%s is %q, want one of %s", name, v, strings.Join(ok, ", ")))
		}
	}
	number("cache_budget", c.CacheBudget, NoCache)
	number("workers", int64(c.Workers), 0)
	number("prefetch", int64(c.Prefetch), 0)
	number("descriptors", int64(c.Descriptors), 0)
	word("policy", c.Policy, choices["policy"])
	word("full", c.Full, choices["full"])
	word("source_pages", c.SourcePages, choices["source_pages"])
	word("backend", c.Backend, choices["backend"])
	word("kernels", c.Kernels, append([]string{"auto"}, quant.Kernels()...))
	number("limits.depth", int64(c.Limits.Depth), 0)
	number("limits.memory", c.Limits.Memory, 0)
	number("limits.records", c.Limits.Records, 0)
	number("limits.pickle_bytes", c.Limits.PickleBytes, 0)
	return errors.Join(errs...)
}

// Effective is c with its defaults filled in. Its Kernels are those that decode:
// the name that auto stands for or, for "", the name of those in use now.
func (c Config) Effective() Config {
	if c.CacheBudget == 0 {
		c.CacheBudget = DefaultCacheBudget
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	word := func(v *string, name string) {
		if *v == "" {
			*v = choices[name][0]
		}
	}
	word(&c.Policy, "policy")
	word(&c.Full, "full")
	word(&c.SourcePages, "source_pages")
	word(&c.Backend, "backend")
	if c.Descriptors == 0 {
		c.Descriptors = mmap.DefaultDescriptors()
	}
	switch c.Kernels {
	case "":
		c.Kernels = quant.Active()
	case "auto":
		c.Kernels = quant.Kernels()[0]
	}
	c.Limits = c.Limits.effective()
	return c
}

// effective is l with its defaults, those of package pytorch, filled in.
func (l Limits) effective() Limits {
	return Limits{
		Depth:       cmp.Or(l.Depth, 1000),
		Memory:      cmp.Or(l.Memory, 4<<30),
		Records:     cmp.Or(l.Records, 1<<20),
		PickleBytes: cmp.Or(l.PickleBytes, 256<<20),
	}
}
