package pytorch

import (
	"io"

	"nibble/internal/rule"
)

// Limits bounds what a file may ask of the reader. The zero value of a field
// means its default. Exceeding a limit is an error of rule PT-006.
type Limits struct {
	// Depth is how deep containers may be nested, counted from the root.
	// Default 1000: Python itself cannot pickle anything deeper.
	Depth int
	// Memory is how many bytes the objects of a pickle, and the names that
	// lead to them, may take. Default 4 GiB. Apart from that they may never
	// take more than 8 MiB and 64 bytes for each byte of the file that was
	// read to find them (256 if it is compressed), several times what sound
	// files need.
	Memory int64
	// Records is how many entries a zip archive may have. Default 1<<20.
	Records int64
	// PickleBytes is how large a compressed pickle may become, in bytes.
	// Default 256 MiB. (A stored one is read in place and may have any size.)
	PickleBytes int64
}

func (l Limits) withDefaults() Limits {
	if l.Depth <= 0 {
		l.Depth = 1000
	}
	if l.Memory <= 0 {
		l.Memory = 4 << 30
	}
	if l.Records <= 0 {
		l.Records = 1 << 20
	}
	if l.PickleBytes <= 0 {
		l.PickleBytes = 256 << 20
	}
	return l
}

// What every file may cost before its size has to explain it.
const (
	freeMemory    = 8 << 20
	memoryPerByte = 64
)

// meter accounts for the memory that interpreting a file takes, and, because
// every step is charged something, for the time. It is charged after small
// steps and before large ones, so that memory overshoots by one small step.
type meter struct {
	used int64 // bytes of memory, estimated
	fed  int64 // bytes of the file that were read, compressed ones counted four times
	max  int64 // Limits.Memory
}

func (m *meter) charge(n int64) { m.used += n }

// over reports whether more is used than the limits allow.
func (m *meter) over() bool {
	return m.used > m.max || m.used > freeMemory+memoryPerByte*m.fed
}

func (m *meter) err() *rule.Error {
	return rule.New(rule.TorchLimit, "limit exceeded: the pickle builds more objects than its size explains")
}

// feeder counts the bytes that are read from the file, each of them weight times.
type feeder struct {
	r      io.Reader
	m      *meter
	weight int64
}

func (f *feeder) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	f.m.fed += f.weight * int64(n)
	return n, err
}
