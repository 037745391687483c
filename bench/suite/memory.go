package suite

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"

	"nibble/cache"
)

const (
	rangeBytes = 1 << 20    // of output, what a worker does at a time, as in the store
	largeBytes = 64 << 20   // of output: more than caches hold
	numel      = largeBytes // of what is decoded: two outputs of 16-bit elements, or four of 32-bit ones
	blockSize  = 64
)

// memory is what kernels read and write. It comes from where a store's outputs
// come from, so that pages have the same size, and is populated.
type memory struct {
	home    *cache.Cache[int]
	buffers []*cache.Buffer

	out     []byte   // largeBytes
	scratch [][]byte // rangeBytes for each worker
	codes   []byte   // numel random bytes, for 8-bit codes, and half of them for 4-bit ones
	scales  []byte   // float32, for all blocks
	codeMap []byte   // float32, for 256 codes
}

func newMemory(ctx context.Context) (*memory, error) {
	m := &memory{home: cache.New[int](cache.Options{Budget: math.MaxInt64})}
	sizes := []int64{largeBytes, numel, numel / blockSize * 4, 256 * 4}
	for range runtime.GOMAXPROCS(0) {
		sizes = append(sizes, rangeBytes)
	}
	for _, n := range sizes {
		b, err := m.home.Buffer(ctx, n)
		if err != nil {
			m.free()
			return nil, err
		}
		clear(b.Bytes())
		m.buffers = append(m.buffers, b)
	}
	m.out, m.codes, m.scales, m.codeMap = m.bytes(0), m.bytes(1), m.bytes(2), m.bytes(3)
	for i := 4; i < len(m.buffers); i++ {
		m.scratch = append(m.scratch, m.bytes(i))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < len(m.codes); i += 8 {
		binary.LittleEndian.PutUint64(m.codes[i:], rng.Uint64())
	}
	fillFloats(m.scales, rng, 0.01, 0.1)
	fillFloats(m.codeMap, rng, -1, 1)
	return m, nil
}

func (m *memory) bytes(i int) []byte { return m.buffers[i].Bytes() }

func fillFloats(b []byte, rng *rand.Rand, lo, hi float32) {
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(lo+(hi-lo)*rng.Float32()))
	}
}

func (m *memory) free() {
	for _, b := range m.buffers {
		b.Free()
	}
	m.home.Close()
}

// target is where a loop writes: so many ranges, by so many workers, decoded from
// a source that it goes through again and again.
type target struct {
	mem     *memory
	ranges  int
	workers int
	cached  bool // a worker writes to its scratch again and again
	outputs int  // that the source has elements for; 0 for as many as there are
}

// large is a destination of n bytes that is written past the caches, from all
// elements in turns: what is not in the caches when it is read.
func (m *memory) large(n int64, workers int) target {
	return target{mem: m, ranges: int(n / rangeBytes), workers: workers}
}

// twice is the same from the elements of two such outputs only, as small ones
// from a file may be in the caches.
func (m *memory) twice(n int64, workers int) target {
	t := m.large(n, workers)
	t.outputs = 2
	return t
}

// cached is a destination that stays in the caches, and so does the source.
func (m *memory) cached(workers int) target {
	return target{mem: m, ranges: workers, workers: workers, cached: true}
}

// size is the size of the output in bytes.
func (t target) size() int64 { return int64(t.ranges) * rangeBytes }

// dst is where worker writes range i; they are numbered on from output to
// output.
func (t target) dst(worker, i int) []byte {
	if t.cached {
		return t.mem.scratch[worker]
	}
	return t.mem.out[i%t.ranges*rangeBytes:][:rangeBytes]
}

// sources is how many ranges of elements of so many bytes the source has.
func (t target) sources(size int) int {
	switch all := numel / (rangeBytes / size); {
	case t.cached:
		return 1
	case t.outputs > 0:
		return min(all, t.outputs*t.ranges)
	default:
		return all
	}
}
