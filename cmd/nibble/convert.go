package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"nibble/convert"
	"nibble/store"
)

func convertCommand(a *app) *cobra.Command {
	c := &converter{app: a}
	var dtype dtypeFlag
	size := sizeFlag(convert.DefaultMaxShardSize)
	cmd := &cobra.Command{
		Use:   "convert PATH -o OUT",
		Short: "write plain safetensors of a checkpoint",
		Long: "convert writes the tensors of a checkpoint, decoded, as plain safetensors under their\n" +
			"own names. An OUT that ends in .safetensors is the file. Any other OUT is a folder\n" +
			"that gets model.safetensors or, beyond --max-shard-size, shards and an index.\n" +
			"Parents of OUT are made.\n\n" +
			"OUT appears complete or not at all, and the source is not touched: an error or an\n" +
			"interrupt leaves nothing behind. A process that is killed leaves a folder\n" +
			".OUT.*.tmp, which can be removed. A conversion with a broken tensor is refused as a\n" +
			"whole; --exclude leaves it out. Memory stays within --budget.\n\n" +
			"From a folder or an index to a folder, these files are copied: tokenizer*,\n" +
			"special_tokens_map.json, added_tokens.json, vocab*, merges.txt, *.model,\n" +
			"chat_template*, generation_config.json, preprocessor_config.json,\n" +
			"processor_config.json, and config.json without quantization_config. torch_dtype (or\n" +
			"dtype, as newer ones call it) becomes the float dtype of most elements; with\n" +
			"--dtype stored, the one that config.json names stays.\n\n" +
			"Metadata is kept. Tensors of a torch file that share their elements are written under\n" +
			"each of their names.",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.out == "" {
				return usagef("no output given: -o OUT names it")
			}
			st, err := a.open(cmd.Context(), cmd, args[0], nil)
			if err != nil {
				return err
			}
			defer st.Close()
			if filtered(cmd) && st.Len() == 0 {
				return usagef("nothing to convert") // open has said why
			}
			c.options.DType, c.options.MaxShardSize = dtype.DType, int64(size)
			return c.run(cmd.Context(), st)
		},
	}
	addOpenFlags(cmd.Flags(), decodeSettings)
	addDTypeFlag(cmd, &dtype)
	cmd.Flags().StringVarP(&c.out, "output", "o", "", "write to this `path`: a .safetensors file, or a folder")
	cmd.Flags().Var(&size, "max-shard-size", "begin another file rather than have more bytes of tensors in one; a larger tensor has its own")
	cmd.Flags().BoolVar(&c.options.Force, "force", false, "replace an output that exists")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print JSON")
	return cmd
}

// sizeFlag is the value of a flag that takes a number of bytes, at least 1.
type sizeFlag int64

func (f *sizeFlag) String() string { return sizeText(int64(*f)) }

// Type implements pflag.Value.
func (f *sizeFlag) Type() string { return "size" }

// Set implements pflag.Value.
func (f *sizeFlag) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1 || n > math.MaxInt64 {
		return errors.New("want a number of bytes such as 5GiB")
	}
	*f = sizeFlag(n)
	return nil
}

// converter writes plain safetensors.
type converter struct {
	app     *app
	out     string
	options convert.Options
	asJSON  bool
}

func (c *converter) run(ctx context.Context, st *store.Store) error {
	c.noteLeftOut(st)
	if st.Len() == 0 && len(st.Opaque()) > 0 {
		return errors.New("nothing else is there: nothing was written")
	}
	report, err := c.convert(ctx, st)
	if err != nil {
		return outputError(err)
	}
	for _, note := range report.Notes {
		c.app.say("%s", note)
	}
	if err := c.noteKept(ctx, st); err != nil {
		return err
	}
	return c.print(report)
}

// convert shows a bar while it converts.
func (c *converter) convert(ctx context.Context, st *store.Store) (convert.Report, error) {
	var bar *progress
	defer func() { bar.stop() }()
	started := false
	c.options.Progress = func(done, total int64) {
		if !started {
			started, bar = true, c.app.startProgress("convert", total, false, byteCounters()...)
		}
		bar.set(done)
	}
	return convert.Run(ctx, st, c.out, c.options)
}

// outputError makes an output that cannot be what was asked for an error of
// use.
func outputError(err error) error {
	var target *convert.TargetError
	switch {
	case !errors.As(err, &target):
		return err
	case errors.Is(err, fs.ErrExist):
		return usagef("%w: --force replaces it", err)
	}
	return usageError{err}
}

// noteLeftOut names a value of a torch file that is no tensor of a known kind.
func (c *converter) noteLeftOut(st *store.Store) {
	opaque := st.Opaque()
	if len(opaque) == 0 {
		return
	}
	more := ""
	if len(opaque) > 1 {
		more = ", …"
	}
	c.app.say("left out %s: %s (%s)%s", countText(len(opaque), "value"), quoteName(opaque[0].Name), opaque[0].Class, more)
}

// noteKept says which tensors kept their dtype.
func (c *converter) noteKept(ctx context.Context, st *store.Store) error {
	kept := keptNote{want: c.options.DType}
	for t := range st.Tensors() {
		got, err := t.Decodes(ctx, c.options.DType)
		if err != nil {
			return err
		}
		kept.add(t.Name(), got)
	}
	kept.tell(c.app)
	return nil
}

func (c *converter) print(r convert.Report) error {
	if c.asJSON {
		if r.Aliases == nil {
			r.Aliases = map[string]string{}
		}
		return c.app.printJSON(struct {
			Files      []string          `json:"files"`
			Tensors    int               `json:"tensors"`
			Bytes      int64             `json:"bytes"`
			DType      string            `json:"dtype"`       // as asked for
			FloatDType string            `json:"float_dtype"` // of most elements; stored when there are no floats
			Aliases    map[string]string `json:"aliases"`
		}{r.Files, r.Tensors, r.Bytes, c.options.DType.String(), r.FloatDType.String(), r.Aliases})
	}
	for _, f := range r.Files {
		if _, err := fmt.Fprintln(c.app.stdout, quoteName(f)); err != nil {
			return err
		}
	}
	c.app.say("%s, %s", countText(r.Tensors, "tensor"), sizeText(r.Bytes))
	return nil
}
