package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/table"
	"nibble/store"
	"nibble/tensor"
)

func layersCommand(a *app) *cobra.Command {
	var (
		dtype  dtypeFlag
		passes int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "layers PATH",
		Short: "iterate the layers, decoding each within the budget",
		Long: "layers iterates the layers of a checkpoint, decodes the tensors of each, holds\n" +
			"them as a consumer would, and lets go of them. It prints a line a layer and pass,\n" +
			"then the statistics of the cache. Sizes are those of all tensors decoded. Hits,\n" +
			"misses and views count tensors: found decoded, decoded, lent straight from the\n" +
			"file.",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if passes < 1 {
				return usagef("--passes is %d, want at least 1", passes)
			}
			s := &sweep{app: a, dtype: dtype.DType, told: map[*store.Tensor]bool{}, kept: keptNote{want: dtype.DType}}
			st, err := a.open(cmd.Context(), cmd, args[0], s.configure)
			if err != nil {
				return err
			}
			defer st.Close()
			s.st = st
			return s.run(cmd.Context(), passes, asJSON)
		},
	}
	addOpenFlags(cmd.Flags(), cacheSettings)
	addDTypeFlag(cmd, &dtype)
	cmd.Flags().IntVar(&passes, "passes", 1, "iterate so many times")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// layerRow is one layer in one pass.
type layerRow struct {
	Name    string  `json:"name"`
	Pass    int     `json:"pass"`
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"` // of all its tensors, decoded
	Seconds float64 `json:"seconds"`
	Hits    int     `json:"hits"`
	Misses  int     `json:"misses"`
	Views   int     `json:"views"`
	Failed  int     `json:"failed,omitempty"`
}

// sweepStats are the statistics behind the rows.
type sweepStats struct {
	Hits      int     `json:"hits"`
	Misses    int     `json:"misses"`
	Views     int     `json:"views"`
	Tiled     int     `json:"tiled"`      // of Misses: too large for the budget, decoded piece by piece
	Failed    int     `json:"failed"`     // broken, or refused by --strict
	Ahead     int64   `json:"prefetched"` // decoded before they were asked for
	Evictions int64   `json:"evictions"`
	Decoded   int64   `json:"decoded_bytes"`
	Peak      int64   `json:"peak_bytes"`
	Budget    int64   `json:"budget_bytes"`
	Seconds   float64 `json:"seconds"`
}

// sweep runs over the layers as a consumer of the model does.
type sweep struct {
	app    *app
	st     *store.Store
	dtype  tensor.DType
	strict bool
	told   map[*store.Tensor]bool // tensors that cannot be decoded, as the user knows
	kept   keptNote
	tiled  int
	rows   []layerRow
}

// configure makes the store refuse what does not fit the budget, so that such
// tensors are decoded piece by piece instead and the peak stays within it.
func (s *sweep) configure(c *store.Config) {
	s.strict, c.Strict = c.Strict, true
}

func (s *sweep) run(ctx context.Context, passes int, asJSON bool) error {
	var out *table.Table
	if !asJSON {
		out = s.table(ctx)
	}
	bar := s.app.startProgress("layers", int64(passes)*s.count(ctx), out != nil, itemCounters()...)
	defer bar.stop()
	for pass := 1; pass <= passes; pass++ {
		for layer, err := range s.st.Layers(ctx) {
			if err != nil {
				return err
			}
			row, err := s.layer(ctx, layer, pass)
			if err != nil {
				return err
			}
			bar.add(1)
			s.rows = append(s.rows, row)
			if out != nil {
				if err := row.print(out, strconv.Itoa(row.Pass)); err != nil {
					return err
				}
			}
		}
	}
	bar.stop()
	if err := s.finish(out); err != nil {
		return err
	}
	s.kept.tell(s.app)
	if len(s.told) > 0 {
		return errTold
	}
	return nil
}

// count is the number of layers.
func (s *sweep) count(ctx context.Context) (n int64) {
	for _, err := range s.st.Layers(ctx) {
		if err == nil {
			n++
		}
	}
	return n
}

// layer acquires one layer and lets go of it.
func (s *sweep) layer(ctx context.Context, l *store.Layer, pass int) (layerRow, error) {
	row := layerRow{Name: l.Name(), Pass: pass, Tensors: l.Len()}
	start := time.Now()
	leases, n, err := l.AcquireCount(ctx, s.dtype)
	if err == nil {
		s.take(&row, leases, n, pass)
	} else {
		err = s.piecemeal(ctx, l, &row)
	}
	row.Seconds = time.Since(start).Seconds()
	return row, err
}

// take consumes leases.
func (s *sweep) take(row *layerRow, leases store.Leases, n store.Count, pass int) {
	for _, lease := range leases {
		row.Bytes += int64(len(lease.Bytes()))
		if pass == 1 {
			s.kept.add(lease.Tensor().Name(), lease.DType())
		}
	}
	leases.Release()
	row.Hits += n.Hits
	row.Misses += n.Misses
	row.Views += n.Views
}

// piecemeal goes through a layer tensor by tensor: it does not fit the budget
// as a whole, or some of it is broken.
func (s *sweep) piecemeal(ctx context.Context, l *store.Layer, row *layerRow) error {
	for t := range l.Tensors() {
		leases, n, err := s.st.AcquireCount(ctx, []*store.Tensor{t}, s.dtype)
		if err == nil {
			s.take(row, leases, n, row.Pass)
			continue
		}
		if errors.Is(err, store.ErrBudget) && !s.strict {
			err = s.tiles(ctx, t, row)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			row.Failed++
			s.tell(t, err)
		}
	}
	return nil
}

// tell names a tensor that cannot be decoded, once.
func (s *sweep) tell(t *store.Tensor, err error) {
	if !s.told[t] {
		s.told[t] = true
		s.app.say("%v", err)
	}
}

// tiles decodes a tensor that is larger than the whole budget.
func (s *sweep) tiles(ctx context.Context, t *store.Tensor, row *layerRow) error {
	for tile, err := range t.Tiles(ctx, s.dtype, 0) {
		if err != nil {
			return err
		}
		if tile.Lo == 0 && row.Pass == 1 {
			s.kept.add(t.Name(), tile.DType)
		}
		row.Bytes += int64(len(tile.Data))
	}
	row.Misses++
	s.tiled++
	return nil
}

// table is as wide as its widest row will be, since rows are printed one by
// one.
func (s *sweep) table(ctx context.Context) *table.Table {
	name := table.Column{Title: "layer"}
	for l, err := range s.st.Layers(ctx) {
		if err == nil {
			name.Width = max(name.Width, table.Width(quoteName(l.Name())))
		}
	}
	right := func(title string, width int) table.Column {
		return table.Column{Title: title, Align: table.Right, Width: width}
	}
	return table.New(s.app.stdout, name, right("pass", 4), right("tensors", 7), right("size", 8),
		right("time", 7), right("hits", 5), right("misses", 6), right("views", 5))
}

// print prints the row; pass stands in the column of that name.
func (r *layerRow) print(out *table.Table, pass string) error {
	out.Row(quoteName(r.Name), pass, strconv.Itoa(r.Tensors), sizeText(r.Bytes),
		timeText(time.Duration(r.Seconds*float64(time.Second))),
		strconv.Itoa(r.Hits), strconv.Itoa(r.Misses), strconv.Itoa(r.Views))
	return out.Flush()
}
