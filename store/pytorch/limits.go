package pytorch

// Limits bounds what a file may ask of the reader. The zero value of a field
// means its default. Exceeding a limit is an error of rule PT-006.
type Limits struct {
	// Depth is how deep containers may be nested, counted from the root.
	// Default 1000: Python itself cannot pickle anything deeper.
	Depth int
	// Objects is how many Python objects a file may build, and how many paths
	// to them are walked. Default 1<<26. Apart from that a file may never
	// build more of them than the size of its pickle explains.
	Objects int64
	// Records is how many entries a zip archive may have. Default 1<<20.
	Records int64
	// PickleBytes is how large a compressed pickle may become, in bytes.
	// Default 256 MiB. (A stored one is read in place and may have any size.)
	PickleBytes int64
}

func (l Limits) withDefaults() Limits {
	if l.Depth <= 0 {
		l.Depth = 1000
	}
	if l.Objects <= 0 {
		l.Objects = 1 << 26
	}
	if l.Records <= 0 {
		l.Records = 1 << 20
	}
	if l.PickleBytes <= 0 {
		l.PickleBytes = 256 << 20
	}
	return l
}
