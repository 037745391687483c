package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/settings"
	"nibble/store"
	"nibble/tensor"
)

func catCommand(a *app) *cobra.Command {
	c := &catter{app: a}
	var dtype dtypeFlag
	var text string
	format := wordFlag{value: "raw", words: []string{"raw", "npy", "text"}}
	cmd := &cobra.Command{
		Use:   "cat PATH NAME",
		Short: "print the elements of one tensor",
		Long: "cat prints the elements of a tensor, decoded: as raw little-endian bytes, as a NumPy\n" +
			"file, or as text. Text has a line for each run along the last dimension; of a tensor of\n" +
			"one dimension, a line for each number. --rows a:b prints the rows from a up to but not\n" +
			"including b of the first dimension.",
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format.value != "text" && isTerminal(a.stdout) {
				return usagef("%s is not for a terminal: redirect it, or ask for --format text", format.value)
			}
			rows, err := parseRows(text)
			if err != nil {
				return err
			}
			st, err := a.open(cmd.Context(), cmd, args[0], nil)
			if err != nil {
				return err
			}
			defer st.Close()
			c.dtype = dtype.DType
			return c.run(cmd.Context(), st, args[1], rows, format.value)
		},
	}
	settings.AddFlags(cmd.Flags(), decodeSettings...) // no globs: one tensor is named
	addDTypeFlag(cmd, &dtype)
	cmd.Flags().StringVar(&text, "rows", "", "only these `rows`, as a:b, counted from 0")
	cmd.Flags().Var(&format, "format", "print as raw, npy or text")
	complete(cmd, "format", format.words)
	return cmd
}

// catter prints one tensor.
type catter struct {
	app    *app
	dtype  tensor.DType
	t      *store.Tensor
	got    tensor.DType // what the elements are decoded to
	shape  tensor.Shape // of what is printed
	lo, hi int64        // elements
}

func (c *catter) run(ctx context.Context, st *store.Store, name string, rows rowRange, format string) error {
	var err error
	if c.t, err = st.Tensor(name); err != nil {
		return err
	}
	info, err := c.t.Info(ctx)
	if err != nil {
		return err
	}
	if c.got, err = c.t.Decodes(ctx, c.dtype); err != nil {
		return err
	}
	if err := c.choose(info, rows); err != nil {
		return err
	}
	kept := keptNote{want: c.dtype}
	kept.add(name, c.got)
	kept.tell(c.app)
	switch format {
	case "npy":
		return c.npy(ctx)
	case "text":
		return c.text(ctx)
	}
	return c.write(ctx, c.app.stdout, func(data []byte) []byte { return data })
}

// choose turns --rows into a range of elements.
func (c *catter) choose(info store.Info, rows rowRange) error {
	c.shape = info.Shape
	numel, ok := info.Shape.Numel()
	if !ok {
		return fmt.Errorf("%s: shape %s has too many elements", quoteName(info.Name), info.Shape)
	}
	c.lo, c.hi = 0, numel
	if rows.text == "" {
		return nil
	}
	if len(info.Shape) == 0 {
		return usagef("--rows %s: %s is a scalar and has no rows", rows.text, quoteName(info.Name))
	}
	first, end, err := rows.of(info.Shape[0])
	if err != nil {
		return err
	}
	c.shape = append(tensor.Shape{end - first}, info.Shape[1:]...)
	if info.Shape[0] > 0 {
		c.lo, c.hi = first*(numel/info.Shape[0]), end*(numel/info.Shape[0])
	}
	return nil
}

// rowRange is a half-open range a:b of rows.
type rowRange struct {
	text       string // as it was given; "" for all rows
	first, end int64  // end is -1 for the last row's
}

// parseRows checks all of a range that needs no tensor. Either end may be left
// out.
func parseRows(text string) (r rowRange, err error) {
	r = rowRange{text: text, end: -1}
	if text == "" {
		return r, nil
	}
	from, to, ok := strings.Cut(text, ":")
	if ok && from != "" {
		r.first, err = strconv.ParseInt(from, 10, 64)
	}
	if ok && to != "" && err == nil {
		r.end, err = strconv.ParseInt(to, 10, 64)
		ok = r.first <= r.end
	}
	if !ok || err != nil || r.first < 0 {
		return rowRange{}, usagef("--rows %s: want a range such as 0:16", text)
	}
	return r, nil
}

// of is the range in a tensor of n rows.
func (r rowRange) of(n int64) (first, end int64, err error) {
	if end = r.end; end < 0 {
		end = n
	}
	if end < r.first || end > n {
		return 0, 0, usagef("--rows %s: the tensor has %d rows", r.text, n)
	}
	return r.first, end, nil
}

// catBytes is how much is decoded at a time.
const catBytes = 1 << 20

// write decodes piece by piece and writes what convert makes of each.
func (c *catter) write(ctx context.Context, w io.Writer, convert func(data []byte) []byte) error {
	total, ok := tensor.Bytes(c.hi-c.lo, c.got)
	if _, whole := tensor.Bytes(c.lo, c.got); !ok || !whole {
		return usagef("these rows do not begin and end at a byte: %s has %d bits an element", c.got, c.got.Bits())
	}
	buf := make([]byte, min(total, catBytes))
	// A multiple of 8 elements is a whole number of bytes, whatever the dtype.
	step := max(int64(len(buf))*8/int64(c.got.Bits())/8*8, 8)
	for lo := c.lo; lo < c.hi; lo += step {
		hi := min(lo+step, c.hi)
		n, _ := tensor.Bytes(hi-lo, c.got)
		data := buf[:n]
		if err := c.t.Read(ctx, data, c.got, lo, hi); err != nil {
			return err
		}
		tensor.LittleEndian(data, data, c.got.WordSize())
		if _, err := w.Write(convert(data)); err != nil {
			return err
		}
	}
	return nil
}

// text prints a line for each run along the last dimension.
func (c *catter) text(ctx context.Context) error {
	size := c.got.Size()
	if size == 0 {
		return usagef("%s has no text: ask for --format raw", c.got)
	}
	run := int64(1)
	if len(c.shape) > 1 {
		run = c.shape[len(c.shape)-1]
	}
	w := bufio.NewWriterSize(c.app.stdout, 64<<10)
	printed := int64(0)
	var line []byte
	err := c.write(ctx, w, func(data []byte) []byte {
		line = line[:0]
		for ; len(data) > 0; data = data[size:] {
			line = appendElement(line, data[:size], c.got)
			if printed++; printed%run == 0 {
				line = append(line, '\n')
			} else {
				line = append(line, ' ')
			}
		}
		return line
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

// appendElement prints one little-endian element with as many digits as tell
// it from its neighbours in float32, float64 or the integers.
func appendElement(to, b []byte, dt tensor.DType) []byte {
	var bits uint64
	for i := len(b) - 1; i >= 0 && i < 8; i-- {
		bits = bits<<8 | uint64(b[i])
	}
	unused := 64 - 8*len(b)
	float := func(f float64, size int) []byte { return strconv.AppendFloat(to, f, 'g', -1, size) }
	switch dt {
	case tensor.Bool:
		return strconv.AppendBool(to, bits != 0)
	case tensor.U8, tensor.U16, tensor.U32, tensor.U64:
		return strconv.AppendUint(to, bits, 10)
	case tensor.I8, tensor.I16, tensor.I32, tensor.I64:
		return strconv.AppendInt(to, int64(bits<<unused)>>unused, 10)
	case tensor.F64:
		return float(math.Float64frombits(bits), 64)
	case tensor.C64, tensor.C128:
		return appendComplex(to, b, dt)
	}
	var f [1]float32
	tensor.Widen(f[:], b, dt)
	return float(float64(f[0]), 32)
}

// appendComplex prints a pair as Python does, such as (1+2j).
func appendComplex(to, b []byte, dt tensor.DType) []byte {
	part := tensor.F32
	if dt == tensor.C128 {
		part = tensor.F64
	}
	half := len(b) / 2
	to = append(to, '(')
	to = appendElement(to, b[:half], part)
	mark := len(to)
	to = appendElement(to, b[half:], part)
	if to[mark] != '-' && to[mark] != '+' {
		to = append(to[:mark], append([]byte{'+'}, to[mark:]...)...)
	}
	return append(to, "j)"...)
}
