// Package convert writes the logical tensors of a checkpoint as plain
// safetensors: decoded, under their own names, without the companions of
// quantization.
//
// # All or nothing
//
// Everything is written to a staging folder beside or inside the target, made
// durable there, and renamed into place at the end. Whatever fails before
// that, a done context included, removes the folder and the parents that were
// made for it. The source is only read, and never replaced.
//
// A target that does not exist appears by one rename, complete. Files in a
// folder that exists are replaced one by one in an order that keeps the old
// checkpoint readable until the file that decides, index or model.safetensors,
// is renamed. Only where new shards have the names of old ones can neither be
// whole for a moment; then the old index and shards leave first, so that a
// crash between two renames leaves shards missing, which every reader reports,
// and never a mixture. If a rename fails, those before it are undone.
//
// A process that is killed leaves its staging folder, .NAME.XXXXXXXX.tmp. It is
// no checkpoint to any reader. A later conversion names such folders in its
// report but does not remove them: their owner may be alive.
//
// # Memory
//
// Tensors are decoded piece by piece within the budget of the store, two at a
// time: one decodes while the other is written.
package convert

import (
	"context"
	"fmt"
	"strings"

	"nibble/store"
	"nibble/tensor"
)

// DefaultMaxShardSize is the most bytes of tensors in one file of a zero
// Options.
const DefaultMaxShardSize = 5 << 30

// Options say how to convert. The zero value is sane.
type Options struct {
	// DType is what float and quantized tensors are decoded to: tensor.F32,
	// F16 or BF16. The zero tensor.Stored is what each restores to. Other
	// tensors keep their dtype.
	DType tensor.DType
	// MaxShardSize is the most bytes of tensors in one file; a single tensor
	// above it gets a file of its own. 0 means DefaultMaxShardSize.
	MaxShardSize int64
	// Force replaces a target that exists.
	Force bool
	// Progress, where not nil, is told how many bytes of tensors are written,
	// after every piece. Calls do not overlap.
	Progress func(done, total int64)
}

// Report says what a conversion wrote.
type Report struct {
	// Files are the paths of all files written, tensors first.
	Files []string
	// Tensors and Bytes count the tensors in those files and their bytes,
	// headers left out.
	Tensors int
	Bytes   int64
	// FloatDType is the float dtype of most elements, tensor.Stored when no
	// element is F64, F32, F16 or BF16.
	FloatDType tensor.DType
	// Aliases are the names that the metadata of the source gives to tied
	// weights, and the tensors that hold them. They are in the metadata of
	// every file.
	Aliases map[string]string
	// Notes are remarks for people.
	Notes []string
}

// A TargetError says that the output cannot be what was asked for. Nothing has
// been written.
// It matches fs.ErrExist where Options.Force would help.
type TargetError struct {
	Path string
	Err  error
}

func (e *TargetError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *TargetError) Unwrap() error { return e.Err }

// A RefusedError lists the errors of all tensors that stand in the way of a
// conversion: broken ones, and those that safetensors cannot hold. Nothing has
// been written.
type RefusedError struct{ Tensors []error }

func (e *RefusedError) Error() string {
	var b strings.Builder
	if n := len(e.Tensors); n == 1 {
		b.WriteString("1 tensor cannot be converted")
	} else {
		fmt.Fprintf(&b, "%d tensors cannot be converted", n)
	}
	b.WriteString("; nothing was written")
	for _, err := range e.Tensors {
		b.WriteByte('\n')
		b.WriteString(err.Error())
	}
	return b.String()
}

func (e *RefusedError) Unwrap() []error { return e.Tensors }

// Run writes the tensors of st that its globs leave to out: to the file out if
// its name ends in .safetensors, else to files in the folder out, which are
// model.safetensors, or beyond Options.MaxShardSize shards and
// model.safetensors.index.json. Parents of out are made.
//
// The metadata of the source is kept; {"format":"pt"} is added where it does
// not name a format. Tensors of a torch file that share their elements are
// written under each of their names. From a source that is a folder or an index to a target
// that is a folder, the files of the tokenizer and of generation are copied,
// and config.json without quantization_config and with the dtype of the
// result.
//
// The error is a *TargetError or a *RefusedError where their doc says so, the
// error of ctx when that is done, and else what failed.
func Run(ctx context.Context, st *store.Store, out string, o Options) (Report, error) {
	t, err := newTarget(out, st, o.Force)
	if err != nil {
		return Report{}, err
	}
	p, err := newPlan(ctx, st, o)
	if err != nil {
		return Report{}, err
	}
	if t.file && len(p.shards) > 1 {
		return Report{}, t.errorf("%d bytes of tensors need %d files of at most %d: give a folder, or raise the shard size",
			p.bytes, len(p.shards), p.maxShard)
	}
	files, err := p.files(t, st)
	if err != nil {
		return Report{}, err
	}
	if err := t.check(files); err != nil {
		return Report{}, err
	}
	if err := t.write(ctx, files); err != nil {
		return Report{}, err
	}
	return p.report(t, files), nil
}
