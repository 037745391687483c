package convert

import (
	"context"
	"errors"
	"fmt"
	"math"

	"nibble/store"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// plan is what will be written, all of it checked.
type plan struct {
	items    []*item
	shards   [][]*item
	metadata map[string]string
	aliases  map[string]string
	bytes    int64 // of all items
	maxShard int64
	dtype    tensor.DType // as asked for
	progress *progress
}

// item is one tensor to write.
type item struct {
	t     *store.Tensor
	info  store.Info
	dtype tensor.DType // in the output
	bytes int64
}

// newPlan decides on every tensor before anything is written. Of quantized ones
// it reads what says how.
func newPlan(ctx context.Context, st *store.Store, o Options) (*plan, error) {
	switch o.DType {
	case tensor.Stored, tensor.F32, tensor.F16, tensor.BF16:
	default:
		return nil, fmt.Errorf("convert: cannot decode to %s, want f32, f16, bf16 or stored", o.DType)
	}
	if o.MaxShardSize < 0 {
		return nil, fmt.Errorf("convert: shard size is %d, want at least 1", o.MaxShardSize)
	}
	p := &plan{maxShard: o.MaxShardSize, dtype: o.DType}
	if p.maxShard == 0 {
		p.maxShard = DefaultMaxShardSize
	}
	if err := p.inspect(ctx, st); err != nil {
		return nil, err
	}
	p.describe(st)
	if err := p.divide(); err != nil {
		return nil, err
	}
	p.progress = &progress{total: p.bytes, tell: o.Progress}
	return p, nil
}

// inspect lists the tensors, or the errors of all that cannot be written.
func (p *plan) inspect(ctx context.Context, st *store.Store) error {
	refused := new(RefusedError)
	for t := range st.Tensors() {
		it, err := p.item(ctx, t)
		if err == nil {
			p.items = append(p.items, it)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		refused.Tensors = append(refused.Tensors, err)
	}
	if len(refused.Tensors) > 0 {
		return refused
	}
	return nil
}

func (p *plan) item(ctx context.Context, t *store.Tensor) (*item, error) {
	info, err := t.Info(ctx)
	if err != nil {
		return nil, err
	}
	dt, err := t.Decodes(ctx, p.dtype)
	if err != nil {
		return nil, err
	}
	// The layout of a file with this tensor alone finds what safetensors cannot
	// hold of it: its dtype, or its name.
	l, err := safetensors.Encode([]safetensors.Tensor{{Name: t.Name(), DType: dt, Shape: info.Shape}}, nil)
	if err != nil {
		return nil, err
	}
	return &item{t: t, info: info, dtype: dt, bytes: l.Tensors[0].End - l.Tensors[0].Begin}, nil
}

// divide fills the shards in the order of the source, as transformers does.
func (p *plan) divide() error {
	shard, size := []*item{}, int64(0)
	for _, it := range p.items {
		if it.bytes > math.MaxInt64-p.bytes {
			return errors.New("convert: the tensors together overflow")
		}
		if len(shard) > 0 && it.bytes > p.maxShard-size {
			p.shards = append(p.shards, shard)
			shard, size = nil, 0
		}
		shard = append(shard, it)
		size += it.bytes
		p.bytes += it.bytes
	}
	p.shards = append(p.shards, shard)
	return nil
}

// floatDType is the float dtype of most elements.
func (p *plan) floatDType() tensor.DType {
	counts := map[tensor.DType]int64{}
	for _, it := range p.items {
		counts[it.dtype] += it.bytes / int64(max(it.dtype.Size(), 1))
	}
	most := tensor.Stored
	for _, dt := range []tensor.DType{tensor.BF16, tensor.F16, tensor.F32, tensor.F64} {
		if counts[dt] > counts[most] {
			most = dt
		}
	}
	return most
}

// files lays out every file, tensors first.
func (p *plan) files(t *target, st *store.Store) ([]*output, error) {
	var files []*output
	var places []safetensors.Placement
	for i, items := range p.shards {
		w, err := newWeights(items, p.metadata, p.progress)
		if err != nil {
			return nil, err
		}
		name := t.weightsName(i, len(p.shards))
		for _, it := range items {
			places = append(places, safetensors.Placement{Tensor: it.t.Name(), Shard: name})
		}
		files = append(files, &output{name: name, kind: shardFile, content: w})
	}
	if len(p.shards) == 1 {
		files[0].kind = decidingFile
	} else {
		index, err := safetensors.EncodeIndex(places, p.bytes)
		if err != nil {
			return nil, err
		}
		files = append(files, &output{name: indexName, kind: decidingFile, content: literal(index)})
	}
	if t.file {
		return files, nil
	}
	sidecars, err := sidecars(st, p.dtype, p.floatDType())
	return append(files, sidecars...), err
}

func (p *plan) report(t *target, files []*output) Report {
	r := Report{
		Tensors: len(p.items), Bytes: p.bytes, FloatDType: p.floatDType(),
		Aliases: p.aliases, Notes: t.notes,
	}
	for _, f := range files {
		r.Files = append(r.Files, t.path(f.name))
	}
	return r
}
