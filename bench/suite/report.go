package suite

import (
	"runtime"
	"slices"

	"nibble/bench/measure"
	"nibble/quant"
)

// Report is what was measured.
type Report struct {
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
}

// Machine is what it was measured on.
type Machine struct {
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"` // processors that this process may use
	GOOS    string   `json:"goos"`
	GOARCH  string   `json:"goarch"`
	Go      string   `json:"go"`
	Kernels []string `json:"kernels"` // best first
}

// The names of rows.
const (
	Memset   = "memset"           // past the caches: the ceiling
	Ordinary = "memset, ordinary" // with ordinary stores
	Floor    = "floor"            // reads what a decoder reads, writes past the caches what it writes, computes nothing
	Decode   = "decode"           // a kernel, from and to memory
	Acquire  = "acquire"          // a cache miss, from the file to a lease
	Batch    = "acquire many"     // the same for the tensors of a layer at once
	Tiles    = "tiles"            // a tensor goes by in a reused cache-sized buffer
	ReadRows = "read rows"        // to a buffer of the caller's
	Hit      = "acquire hit"      // a lease on what is cached; size and rate mean nothing
)

// Enough is the number of samples from which a median is to be trusted.
const Enough = 9

// Row is one figure. Ratios are of times, of this row to another with the same
// size, output and workers; below 1 is faster; nil when there is no such row.
type Row struct {
	Section string `json:"section"` // a heading; what is compared was measured in turns
	Name    string `json:"name"`
	Tensors int    `json:"tensors,omitempty"` // that are acquired at once
	Kernels string `json:"kernels,omitempty"` // "" where nothing is decoded
	Scheme  string `json:"scheme"`            // of a floor, 4-bit or 8-bit; "" of a memset
	Nested  bool   `json:"nested"`
	Out     string `json:"out"` // "" where it does not matter
	// SizeBytes is the output of doing it once. Cached says that each worker
	// writes to the same MiB again and again.
	SizeBytes int64 `json:"size_bytes"`
	Cached    bool  `json:"cached"`
	Workers   int   `json:"workers"`

	Seconds    float64  `json:"seconds"` // median of doing it once
	GBps       float64  `json:"gbps"`    // 10^9 bytes of output a second
	VsFloor    *float64 `json:"vs_floor"`
	VsMemset   *float64 `json:"vs_memset"`
	VsOrdinary *float64 `json:"vs_ordinary"` // to the ordinary memset
	// Speedup is how many times as much all workers do as one does; nil for
	// one.
	Speedup *float64 `json:"speedup"`

	Samples  int `json:"samples"`  // accepted; 0: the median is of contended ones
	Rejected int `json:"rejected"` // contended
}

// report collects what the sections have measured.
func report(sections []*section) *Report {
	r := &Report{Machine: Machine{
		CPU: cpuName(), Cores: runtime.GOMAXPROCS(0), GOOS: runtime.GOOS, GOARCH: runtime.GOARCH,
		Go: runtime.Version(), Kernels: quant.Kernels(),
	}}
	for _, s := range sections {
		results := make([]measure.Result, len(s.rows))
		for i := range results {
			results[i] = s.measurer().Result(i)
		}
		r.Rows = append(r.Rows, complete(s.rows, s.refs, results)...)
	}
	return r
}

// complete returns the rows with their figures, without those that have none.
func complete(rows []Row, refs []references, results []measure.Result) []Row {
	var done []Row
	for i, r := range rows {
		m := results[i]
		if m.Seconds == 0 {
			continue
		}
		r.Seconds, r.Samples, r.Rejected = m.Seconds, m.Accepted, m.Rejected
		r.GBps = float64(r.SizeBytes) / m.Seconds / 1e9
		r.VsMemset = ratio(results, i, refs[i].memset)
		r.VsOrdinary = ratio(results, i, refs[i].ordinary)
		r.VsFloor = ratio(results, i, refs[i].floor)
		if one := withOneWorker(rows, r); one != none && results[one].Seconds > 0 {
			v := r.GBps / (float64(rows[one].SizeBytes) / results[one].Seconds / 1e9)
			r.Speedup = &v
		}
		done = append(done, r)
	}
	return done
}

// ratio is that of two times, or nil where there is no second.
func ratio(results []measure.Result, i, to int) *float64 {
	if to == none || results[to].Seconds == 0 {
		return nil
	}
	v := results[i].Seconds / results[to].Seconds
	return &v
}

// withOneWorker finds the row that does with one worker what r does with more.
func withOneWorker(rows []Row, r Row) int {
	if r.Workers == 1 {
		return none
	}
	return slices.IndexFunc(rows, func(one Row) bool { return one.Workers == 1 && one.subject() == r.subject() })
}

// subject is what a row is about, whatever the number of workers. What stays in
// the caches is a MiB for each of them.
func (r Row) subject() Row {
	s := Row{Name: r.Name, Tensors: r.Tensors, Kernels: r.Kernels, Scheme: r.Scheme, Nested: r.Nested, Out: r.Out, Cached: r.Cached}
	if !r.Cached {
		s.SizeBytes = r.SizeBytes
	}
	return s
}
