package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/table"
	"nibble/store"
	"nibble/tensor"
)

func inspectCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "list the tensors: shape, dtype, scheme, stored bytes, file",
		Long: "inspect lists the tensors of a checkpoint as they decode, the companions of\n" +
			"quantized ones folded in, with aliases, metadata and totals. Broken tensors are\n" +
			"listed with what is wrong.",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.open(cmd.Context(), cmd, args[0], nil)
			if err != nil {
				return err
			}
			defer st.Close()
			r, err := inspect(cmd.Context(), st)
			if err != nil {
				return err
			}
			if !filtered(cmd) {
				r.Totals.StoredBytes = st.StoredBytes()
			}
			if asJSON {
				return a.printJSON(r)
			}
			return r.print(a)
		},
	}
	addOpenFlags(cmd.Flags(), readSettings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// inspection is what inspect prints.
type inspection struct {
	Tensors  []tensorRow       `json:"tensors"`
	Aliases  map[string]string `json:"aliases"`
	Metadata map[string]string `json:"metadata"`
	Opaque   []opaqueRow       `json:"opaque"`
	Totals   inspectTotals     `json:"totals"`
}

// opaqueRow is a value in a torch file that is not a tensor nibble reads.
type opaqueRow struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	File  string `json:"file"`
}

type tensorRow struct {
	Name        string       `json:"name"`
	Shape       tensor.Shape `json:"shape"`
	DType       string       `json:"dtype"` // "" of what is broken so that it has none
	StoredDType string       `json:"stored_dtype"`
	Scheme      store.Scheme `json:"scheme"`
	BlockSize   *int64       `json:"blocksize"` // nil: no blocks
	Nested      bool         `json:"nested"`
	StoredBytes int64        `json:"stored_bytes"`
	File        string       `json:"file"`
	Error       string       `json:"error,omitempty"`
}

type inspectTotals struct {
	Tensors     int              `json:"tensors"`
	Broken      int              `json:"broken"`
	Files       int              `json:"files"`
	StoredBytes int64            `json:"stored_bytes"`  // shared bytes once, unless globs choose among the tensors
	Decoded     int64            `json:"decoded_bytes"` // of all tensors that are not broken
	ByDType     map[string]int64 `json:"decoded_bytes_by_dtype"`
	Schemes     map[string]int   `json:"tensors_by_scheme"`
}

func inspect(ctx context.Context, st *store.Store) (*inspection, error) {
	r := &inspection{
		Tensors: make([]tensorRow, 0, st.Len()), Aliases: st.Aliases(), Metadata: st.Metadata(), Opaque: []opaqueRow{},
		Totals: inspectTotals{Files: len(st.Files()), ByDType: map[string]int64{}, Schemes: map[string]int{}},
	}
	if r.Aliases == nil {
		r.Aliases = map[string]string{}
	}
	for _, o := range st.Opaque() {
		r.Opaque = append(r.Opaque, opaqueRow(o))
	}
	for t := range st.Tensors() {
		info, err := t.Info(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.add(info, err)
	}
	return r, nil
}

func (r *inspection) add(info store.Info, err error) {
	row := tensorRow{
		Name: info.Name, Shape: shapeJSON(info.Shape), DType: dtypeJSON(info.DType), StoredDType: dtypeJSON(info.StoredDType),
		Scheme: info.Scheme, Nested: info.Nested, StoredBytes: info.StoredBytes, File: info.File,
	}
	if info.BlockSize > 0 {
		row.BlockSize = &info.BlockSize
	}
	t := &r.Totals
	t.Tensors++
	t.StoredBytes += info.StoredBytes
	t.Schemes[string(info.Scheme)]++
	if err != nil {
		row.Error = cause(err)
		t.Broken++
	} else if n, ok := info.Shape.Numel(); ok {
		bytes, _ := tensor.Bytes(n, info.DType)
		t.Decoded += bytes
		t.ByDType[row.DType] += bytes
	}
	r.Tensors = append(r.Tensors, row)
}

func (r *inspection) print(a *app) error {
	columns := []table.Column{
		{Title: "tensor"}, {Title: "shape"}, {Title: "dtype"}, {Title: "scheme"},
		{Title: "stored", Align: table.Right}, {Title: "file"},
	}
	if r.Totals.Broken > 0 {
		columns = append(columns, table.Column{Title: "error"})
	}
	out := table.New(a.stdout, columns...)
	for _, t := range r.Tensors {
		shape, dtype := kindText(t.Shape, t.DType)
		cells := []string{quoteName(t.Name), shape, dtype, t.schemeText(), sizeText(t.StoredBytes), quoteName(t.File)}
		if t.Error != "" {
			cells = append(cells, seen(t.Error))
		}
		out.Row(cells...)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.stdout, r.footer())
	return err
}

// schemeText is such as "nf4/64 nested".
func (t *tensorRow) schemeText() string {
	text := string(t.Scheme)
	if t.BlockSize != nil {
		text += fmt.Sprintf("/%d", *t.BlockSize)
	}
	if t.Nested {
		text += " nested"
	}
	return text
}

func (r *inspection) footer() string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, k := range slices.Sorted(maps.Keys(r.Aliases)) {
		fmt.Fprintf(&b, "alias %s = %s\n", quoteName(k), quoteName(r.Aliases[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		if _, alias := r.Aliases[k]; !alias {
			fmt.Fprintf(&b, "metadata %s = %q\n", quoteName(k), r.Metadata[k])
		}
	}
	for _, o := range r.Opaque {
		fmt.Fprintf(&b, "opaque %s = %s\n", quoteName(o.Name), quoteName(o.Class))
	}
	t := r.Totals
	fmt.Fprintf(&b, "%s in %s, %s stored, %s decoded", countText(t.Tensors, "tensor"), countText(t.Files, "file"),
		sizeText(t.StoredBytes), sizeText(t.Decoded))
	if len(t.ByDType) > 1 {
		var parts []string
		for _, d := range slices.Sorted(maps.Keys(t.ByDType)) {
			parts = append(parts, d+" "+sizeText(t.ByDType[d]))
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(parts, ", "))
	}
	if t.Broken > 0 {
		fmt.Fprintf(&b, ", %d broken", t.Broken)
	}
	b.WriteByte('\n')
	return b.String()
}
