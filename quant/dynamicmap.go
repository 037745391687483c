package quant

import (
	"math"
	"slices"
)

// DynamicMap is bitsandbytes' create_dynamic_map() as current torch computes
// it: the default 8-bit map, for states that imply it without storing it. Its
// last bits depend on the torch that wrote a file, so a stored map always comes
// first.
//
// Each of seven powers of ten has 2^i intervals between 0.1 and 1, and their
// means of either sign are values of the map, with 0 and 1 added.
func DynamicMap() [256]float32 {
	m := make([]float32, 0, 256)
	for i := range 7 {
		bounds := linspace(1<<i + 1)
		scale := float32(math.Pow(10, float64(i-6)))
		for k := range len(bounds) - 1 {
			mean := (bounds[k] + bounds[k+1]) / 2
			m = append(m, scale*mean, -scale*mean)
		}
	}
	m = append(m, 0, 1)
	slices.Sort(m)
	return [256]float32(m)
}

// linspace is torch.linspace(0.1, 1, n) in float32: from both ends to the
// middle, product and sum rounded once. The product of 24 bits and a small
// integer is exact in float64.
func linspace(n int) []float32 {
	const start, end = float32(0.1), float32(1)
	step := (end - start) / float32(n-1)
	s := make([]float32, n)
	for k := range s {
		if k < n/2 {
			s[k] = float32(float64(start) + float64(step)*float64(k))
		} else {
			s[k] = float32(float64(end) - float64(step)*float64(n-k-1))
		}
	}
	return s
}
