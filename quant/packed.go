package quant

// Values are the sixteen numbers that codes stand for, before scaling. The
// caller owns them.
func (d *FourBit) Values([][]byte) []float32 {
	t := d.Table()
	return t[:]
}

// Values are the 256 numbers that codes stand for, before scaling, read from
// the whole parts. The caller owns them.
func (d *Blockwise) Values(parts [][]byte) []float32 {
	m := make([]float32, 256)
	d.codeMap.read(m, parts[2], 0)
	return m
}

// Blocks is the number of rows: each has one scale.
func (d *Int8) Blocks() int64 { return d.rows }

// Scales reads the row statistics SCB to dst, of length Blocks, from the whole
// parts. An element is code * SCB / 127, rounded as Decode says.
func (d *Int8) Scales(dst []float32, parts [][]byte) { d.scb.read(dst, parts[1], 0) }

// Values is nil: codes of LLM.int8() are the numbers.
func (d *Int8) Values([][]byte) []float32 { return nil }
