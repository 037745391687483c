package pytorch

import (
	"nibble/internal/rule"
	"nibble/tensor"
)

// value is a Python object as far as nibble needs it:
//
//	nil            None
//	bool           bool
//	int64          int
//	*big.Int       int beyond 64 bits
//	float64        float
//	string         str
//	bytesValue     bytes, bytearray
//	long           str or bytes that were too long to keep
//	*list *tuple *dict
//	*global        a class or function that was named
//	*storageClass  one of torch's storage classes
//	tensor.DType   a torch.dtype that nibble has
//	*storageRef    a storage
//	*tensorValue   a tensor, readable or not
//	*object        an instance of a class
//	inert          something known that holds no tensors
type value any

type bytesValue string

type long struct{ n int64 }

type inert struct{}

// visits is what the walk remembers about a container.
type visits struct {
	onPath bool // being walked: meeting it again is a cycle
	barren bool // walked before without finding anything to list
}

func (v *visits) visited() *visits { return v }

// list is a Python list, set or frozenset.
type list struct {
	visits
	items []value
}

type tuple struct {
	visits
	items []value
}

type entry struct{ key, val value }

// dict is a Python dict or OrderedDict as it was filled: a key may occur more
// than once, and then the last one counts.
type dict struct {
	visits
	entries []entry
}

// get returns the value of a string key.
func (d *dict) get(key string) (value, bool) {
	for i := len(d.entries) - 1; i >= 0; i-- {
		if k, ok := d.entries[i].key.(string); ok && k == key {
			return d.entries[i].val, true
		}
	}
	return nil, false
}

// global is a name in a module. Nothing is ever looked up under it.
type global struct{ module, name string }

func (g *global) String() string {
	if g.module == "" {
		return g.name
	}
	return g.module + "." + g.name
}

// object is an instance of a class that is not one of the above.
type object struct {
	visits
	class *global
	state value // what BUILD set last
}

// attrs returns the attributes of the object, nil if it has none.
func (o *object) attrs() *dict { return attrsOf(o.state) }

// attrsOf returns the attributes that a state given to BUILD sets. A class with
// __slots__ has a pair as state, whose first half is the usual dict.
func attrsOf(state value) *dict {
	if t, ok := state.(*tuple); ok && len(t.items) == 2 {
		state = t.items[0]
	}
	d, _ := state.(*dict)
	return d
}

// storageClass is one of torch's typed storages, or the untyped one.
type storageClass struct {
	name  string
	dtype tensor.DType // Stored for quantized types
	size  int64        // of an element, in bytes
}

// storageRef is a storage as a pickle refers to it.
type storageRef struct {
	index int // into File.Storages, -1 when err is set
	class *storageClass
	start int64 // first element, not 0 for views of legacy files
	numel int64 // elements of class.size bytes
	err   *rule.Error
}

// tensorValue is a tensor as a pickle builds it.
type tensorValue struct {
	visits
	dtype   tensor.DType
	shape   tensor.Shape
	strides []int64
	storage int
	start   int64
	kind    string
	err     *rule.Error
	class   *global // of a subclass, nil for an ordinary tensor
	state   value   // attributes of a subclass
}

// Rough sizes of the above in memory, slot or box included, for the meter.
const (
	costSlot      = 16 // a place on the stack or in a container
	costBox       = 16
	costContainer = 64
	costGlobal    = 96
	costStorage   = 96
	costTensor    = 256
	costListed    = 384 // a Tensor, its name not included
	costError     = 512
)
