package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"nibble/store"
	"nibble/tensor"
)

func sumCommand(a *app) *cobra.Command {
	s := &summer{app: a}
	var (
		dtype  dtypeFlag
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "sum PATH [NAME…]",
		Short: "print the sha256 of each tensor's decoded bytes",
		Long: "sum prints the sha256 of each tensor's elements, decoded, in row-major order and\n" +
			"little-endian, its dtype, shape and name. With --raw it hashes the stored bytes of\n" +
			"every stored tensor, the companions of quantized ones included.",
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.raw && cmd.Flags().Changed("dtype") {
				return usagef("--raw hashes stored bytes: --dtype says nothing about them")
			}
			if len(args) > 1 && filtered(cmd) {
				return usagef("names say which tensors, and so do --include and --exclude: give one or the other")
			}
			st, err := a.open(cmd.Context(), cmd, args[0], nil)
			if err != nil {
				return err
			}
			defer st.Close()
			s.st, s.dtype = st, dtype.DType
			return s.run(cmd.Context(), args[1:], asJSON)
		},
	}
	addOpenFlags(cmd.Flags(), decodeSettings)
	addDTypeFlag(cmd, &dtype)
	cmd.Flags().BoolVar(&s.raw, "raw", false, "hash stored bytes instead of decoded elements")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sumRow is one tensor's sum, or why there is none.
type sumRow struct {
	Name   string       `json:"name"`
	Shape  tensor.Shape `json:"shape,omitzero"` // nil for a name that no tensor has
	DType  string       `json:"dtype,omitempty"`
	Scheme store.Scheme `json:"scheme,omitempty"`
	SHA256 string       `json:"sha256,omitempty"`
	Error  string       `json:"error,omitempty"`
	err    error
}

// summer hashes tensors.
type summer struct {
	app   *app
	st    *store.Store
	dtype tensor.DType
	raw   bool
}

func (s *summer) run(ctx context.Context, names []string, asJSON bool) error {
	rows := []sumRow{}
	failed := false
	bar := s.app.startProgress("sum", s.count(names), !asJSON, itemCounters()...)
	defer bar.stop()
	for row := range s.sums(ctx, names) {
		bar.add(1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if row.err != nil {
			failed = true
			s.app.say("%v", row.err)
		}
		if asJSON {
			rows = append(rows, row)
		} else if err := row.print(s.app); err != nil {
			return err
		}
	}
	bar.stop()
	if asJSON {
		if err := s.app.printJSON(map[string][]sumRow{"tensors": rows}); err != nil {
			return err
		}
	}
	if failed {
		return errTold
	}
	return nil
}

// count is the number of rows.
func (s *summer) count(names []string) int64 {
	if len(names) > 0 {
		return int64(len(names))
	}
	n := int64(s.st.Len())
	if s.raw {
		n = 0
		for range s.st.StoredTensors() {
			n++
		}
	}
	return n
}

// print prints the line of one tensor. A name that no tensor has got its
// message and has no line.
func (r *sumRow) print(a *app) error {
	sum := r.SHA256
	if r.err != nil {
		if r.Shape == nil {
			return nil
		}
		sum = "error"
	}
	shape, dtype := kindText(r.Shape, r.DType)
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s  %s\n", sum, dtype, shape, quoteName(r.Name))
	return err
}

// sums yields the rows in order while as many tensors are hashed at once as the
// store has workers: hashing is serial, and slower than decoding.
func (s *summer) sums(ctx context.Context, names []string) iter.Seq[sumRow] {
	return func(yield func(sumRow) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The queue holds the rows under way; its length bounds how many.
		queue := make(chan chan sumRow, s.st.Config().Workers)
		go func() {
			defer close(queue)
			for task := range s.tasks(names) {
				row := make(chan sumRow, 1)
				select {
				case queue <- row:
					go func() { row <- task(ctx) }()
				case <-ctx.Done():
					return
				}
			}
		}()
		going := true
		for row := range queue {
			r := <-row
			if going && !yield(r) {
				going = false
				cancel()
			}
		}
	}
}

// tasks yields one function a row: for all tensors, or for those named.
func (s *summer) tasks(names []string) iter.Seq[func(context.Context) sumRow] {
	return func(yield func(func(context.Context) sumRow) bool) {
		all, find := s.st.Tensors, s.st.Tensor
		if s.raw {
			all, find = s.st.StoredTensors, s.st.StoredTensor
		}
		if len(names) == 0 {
			for t := range all() {
				if !yield(func(ctx context.Context) sumRow { return s.sum(ctx, t) }) {
					return
				}
			}
			return
		}
		for _, name := range names {
			t, err := find(name)
			task := func(ctx context.Context) sumRow { return s.sum(ctx, t) }
			if err != nil {
				task = func(context.Context) sumRow { return sumRow{Name: name, Error: err.Error(), err: err} }
			}
			if !yield(task) {
				return
			}
		}
	}
}

// sum hashes one tensor.
func (s *summer) sum(ctx context.Context, t *store.Tensor) sumRow {
	info, err := t.Info(ctx)
	row := sumRow{Name: t.Name(), Shape: shapeJSON(info.Shape), DType: dtypeJSON(info.DType), Scheme: info.Scheme}
	if err == nil {
		var dt tensor.DType
		if dt, err = t.Decodes(ctx, s.dtype); err == nil {
			row.DType = dt.String()
			row.SHA256, err = hash(ctx, t, s.dtype)
		}
	}
	if err != nil {
		row.Error, row.err = cause(err), err
	}
	return row
}

// hash is the sha256 of t's elements as dt, row-major and little-endian.
func hash(ctx context.Context, t *store.Tensor, dt tensor.DType) (string, error) {
	h := sha256.New()
	for tile, err := range t.Tiles(ctx, dt, 0) {
		if err != nil {
			return "", err
		}
		tensor.LittleEndian(tile.Data, tile.Data, tile.DType.WordSize())
		h.Write(tile.Data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
