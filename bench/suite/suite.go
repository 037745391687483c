// Package suite measures what this machine can do: what memory allows, each
// decoding kernel, and the whole way from a file to a lease. It is what nibble
// bench prints.
package suite

import (
	"context"
	"errors"
	"time"

	"nibble/bench/measure"
	"nibble/quant"
)

// DefaultTime is how long a run takes at most unless Options say otherwise.
const DefaultTime = 40 * time.Second

// Options say how to run. The zero value is sane.
type Options struct {
	// Time bounds the whole run, of which preparing takes a second or so; 0
	// means DefaultTime. The run ends earlier when there are enough samples.
	// Rows that there is no time for are missing from the report, but for the
	// first of each section.
	Time time.Duration
	// Progress is told now and then how much of Time has been used, or is not
	// needed, from 0 to 1. nil is told nothing.
	Progress func(part float64)
}

// Run measures. It fills some 500 MiB of memory and 100 of a temporary
// folder, removed before it returns. It switches the kernels of this process
// back and forth: nothing else should decode meanwhile. A done ctx ends it with
// that error.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	if o.Time == 0 {
		o.Time = DefaultTime
	}
	end := time.Now().Add(o.Time)
	kernels := quant.Active()
	defer func() { _ = quant.SetKernels(kernels) }() // a name it gave itself
	mem, err := newMemory(ctx)
	if err != nil {
		return nil, err
	}
	defer mem.free()
	files, err := newFiles(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.remove()) }()
	paths, err := files.sections(ctx, mem)
	if err != nil {
		return nil, err
	}
	sections := append(kernelSections(ctx, mem), paths...)
	if err := run(ctx, sections, end, o.Progress); err != nil {
		return nil, err
	}
	return report(sections), nil
}

// run gives each section its share of the time, and then what the others left
// of theirs.
func run(ctx context.Context, sections []*section, end time.Time, progress func(float64)) error {
	begin := time.Now()
	for pass := range 2 {
		if pass > 0 && time.Now().After(end) {
			return nil
		}
		left := 0
		for _, s := range sections {
			if !s.done() {
				left += len(s.rows)
			}
		}
		for i, s := range sections {
			if s.done() {
				continue
			}
			share := float64(len(s.rows)) / float64(left)
			left -= len(s.rows)
			if err := s.run(ctx, time.Duration(share*float64(time.Until(end)))); err != nil {
				return err
			}
			if progress != nil {
				used := float64(time.Since(begin)) / float64(end.Sub(begin))
				progress(max(used, float64(i+1)/float64(len(sections))))
			}
		}
	}
	return nil
}

// section is a group of rows that are compared with each other.
type section struct {
	title string
	rows  []Row
	loops []measure.Loop
	group *measure.Group
	refs  []references
}

// references are the rows of the same section that a row is compared with, by
// number; none is -1.
type references struct{ memset, ordinary, floor int }

const none = -1

// add adds a row and what it measures, and returns its number.
func (s *section) add(r Row, l measure.Loop, refs references) int {
	kernels := r.Kernels
	if kernels == "" {
		kernels = "auto"
	}
	inner := l.Run
	l.Run = func(n int) error {
		if err := quant.SetKernels(kernels); err != nil {
			return err
		}
		return inner(n)
	}
	r.Section = s.title
	s.rows, s.loops, s.refs = append(s.rows, r), append(s.loops, l), append(s.refs, refs)
	return len(s.rows) - 1
}

func (s *section) measurer() *measure.Group {
	if s.group == nil {
		s.group = measure.NewGroup(s.loops, measure.Options{})
	}
	return s.group
}

func (s *section) done() bool { return s.measurer().Done() }

func (s *section) run(ctx context.Context, long time.Duration) error {
	return s.measurer().Run(ctx, long)
}
