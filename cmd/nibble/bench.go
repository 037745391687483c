package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nibble/bench/suite"
	"nibble/cmd/nibble/internal/table"
)

func benchCommand(a *app) *cobra.Command {
	var (
		seconds float64
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure what this machine can do",
		Long: "bench measures what memory allows on this machine, each decoding kernel, and the\n" +
			"whole way from a file to a lease. It makes its own data: some 500 MiB of memory,\n" +
			"and 100 of a temporary folder, which is removed again.\n\n" +
			"Everything is measured in turns, and samples during which other processes took\n" +
			"the processors are rejected. Rates are in 10^9 bytes of output a second. Ratios\n" +
			"are of times, with the same size and workers: to a loop that reads what a decoder\n" +
			"reads and writes what it writes but computes nothing (floor), to a memset past\n" +
			"the caches, and to an ordinary one. Below 1 is faster.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds <= 0 {
				return usagef("--seconds is %v, want more than 0", seconds)
			}
			progress, done := a.benchProgress()
			r, err := suite.Run(cmd.Context(), suite.Options{
				Time:     time.Duration(seconds * float64(time.Second)),
				Progress: progress,
			})
			done()
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(r)
			}
			return a.printBench(r)
		},
	}
	cmd.Flags().Float64Var(&seconds, "seconds", suite.DefaultTime.Seconds(), "take at most this `long`; rows that there is no time for are left out")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// benchProgress tells people at a terminal how far the run is, on one line that
// done removes.
func (a *app) benchProgress() (progress func(part float64), done func()) {
	if !isTerminal(a.stderr) {
		return nil, func() {}
	}
	return func(part float64) { fmt.Fprintf(a.stderr, "\rnibble: %3.0f %%", 100*min(part, 1)) },
		func() { fmt.Fprint(a.stderr, "\r\x1b[K") }
}

func (a *app) printBench(r *suite.Report) error {
	m := r.Machine
	fmt.Fprintf(a.stdout, "%s, %s, %s/%s, %s\nkernels %s\n", m.CPU, countText(m.Cores, "processor"),
		m.GOOS, m.GOARCH, m.Go, strings.Join(m.Kernels, " "))
	var (
		out     *table.Table
		section string
		notes   []string
	)
	if note, ok := memoryNote(r.Rows); ok {
		notes = append(notes, note)
	}
	for _, row := range r.Rows {
		if row.Name == suite.Hit {
			notes = append(notes, fmt.Sprintf("a lease on what is cached takes %.0f ns", row.Seconds*1e9))
			continue
		}
		if out == nil || row.Section != section {
			section = row.Section
			fmt.Fprintf(a.stdout, "\n%s\n", section)
			out = a.benchTable()
		}
		printBenchRow(out, row)
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(r.Rows, func(row suite.Row) bool { return row.Samples < suite.Enough }) {
		notes = append(notes, fmt.Sprintf("* fewer than %d samples had the processors to themselves: try a quieter moment, or more --seconds", suite.Enough))
	}
	for _, note := range notes {
		fmt.Fprintf(a.stdout, "\n%s\n", note)
	}
	return nil
}

// memoryNote says what more workers can gain on this machine at most, where
// outputs leave the caches.
func memoryNote(rows []suite.Row) (note string, ok bool) {
	var most suite.Row
	for _, r := range rows {
		if r.Name == suite.Memset && !r.Cached && r.Speedup != nil && r.Samples >= suite.Enough && r.SizeBytes > most.SizeBytes {
			most = r
		}
	}
	if most.Speedup == nil {
		return "", false
	}
	return fmt.Sprintf("memset past the caches by %d workers: %.2f times that by one, %.0f GB/s; no decoder writes faster",
		most.Workers, *most.Speedup, most.GBps), true
}

// benchTable is a table for one section; all have columns of the same widths.
func (a *app) benchTable() *table.Table {
	left := func(title string, width int) table.Column { return table.Column{Title: title, Width: width} }
	right := func(title string, width int) table.Column {
		return table.Column{Title: title, Align: table.Right, Width: width}
	}
	return table.New(a.stdout, left("what", 18), left("scheme", 10), left("out", 6), left("kernels", 10),
		right("size", 7), right("workers", 7), right("GB/s", 6), right("floor", 5), right("memset", 6),
		right("ordinary", 8), right("speedup", 7), right("samples", 7))
}

func printBenchRow(out *table.Table, r suite.Row) {
	scheme := r.Scheme
	if r.Nested {
		scheme += " nested"
	}
	samples := strconv.Itoa(r.Samples)
	if r.Samples < suite.Enough {
		samples += "*"
	}
	what := r.Name
	if r.Tensors > 1 {
		what = fmt.Sprintf("%s (%d)", what, r.Tensors)
	}
	out.Row(what, scheme, r.Out, r.Kernels, sizeText(r.SizeBytes), strconv.Itoa(r.Workers), fmt.Sprintf("%.1f", r.GBps),
		ratioText(r.VsFloor), ratioText(r.VsMemset), ratioText(r.VsOrdinary), ratioText(r.Speedup), samples)
}

// ratioText prints a ratio, or nothing where there is none.
func ratioText(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *v)
}
