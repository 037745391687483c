package main

import (
	"math"
	"math/rand/v2"
)

// access is one request for one tensor.
type access struct {
	key  int
	size int64
}

// trace is a sequence of requests in passes.
type trace struct {
	name   string
	passes [][]access
	model  int64 // bytes of all tensors
	budget int64 // bytes
}

const (
	passes = 20
	layers = 32
	kib    = 1 << 10
)

// layerSizes are the outputs of one layer of a dense model, at 1/16 of the
// sizes of a 7B Llama with grouped heads: norm, q, k, v, o, norm, gate, up, down.
var layerSizes = []int64{8 * kib, 2048 * kib, 512 * kib, 512 * kib, 2048 * kib, 8 * kib, 7168 * kib, 7168 * kib, 7168 * kib}

// dense is one pass over a dense model, layer by layer.
func dense() []access {
	var all []access
	for range layers {
		for _, size := range layerSizes {
			all = append(all, access{len(all), size})
		}
	}
	return all
}

// total is the bytes of the tensors of a pass that reads each once.
func total(pass []access) int64 {
	var n int64
	for _, a := range pass {
		n += a.size
	}
	return n
}

// traces returns all traces, the same ones on each call.
func traces() []trace {
	var all []trace
	add := func(name string, passes [][]access, model int64, percents ...int64) {
		for _, p := range percents {
			all = append(all, trace{name, passes, model, model * p / 100})
		}
	}
	model := total(dense())
	add("cyclic sweeps", cyclic(), model, 25, 50, 75)
	add("forward and backward", thereAndBack(), model, 25, 50, 75)
	add("random", random(rand.New(rand.NewPCG(1, 1))), model, 25, 50)
	add("experts, drifting", experts(rand.New(rand.NewPCG(2, 2))), expertModel(), 25, 50)
	add("mixed", mixed(rand.New(rand.NewPCG(3, 3))), model, 25, 50)
	return all
}

// cyclic reads the model from the first layer to the last, again and again.
func cyclic() [][]access {
	all := make([][]access, passes)
	for i := range all {
		all[i] = dense()
	}
	return all
}

// thereAndBack reads the layers forward and then backward, as training with
// recomputation does; both make one pass.
func thereAndBack() [][]access {
	all := make([][]access, passes)
	for i := range all {
		all[i] = append(dense(), reversed(dense())...)
	}
	return all
}

func reversed(pass []access) []access {
	n := len(pass)
	for i := range n / 2 {
		pass[i], pass[n-1-i] = pass[n-1-i], pass[i]
	}
	return pass
}

// random asks for as many tensors as the model has, each equally likely.
func random(r *rand.Rand) [][]access {
	model := dense()
	all := make([][]access, passes)
	for i := range all {
		for range model {
			all[i] = append(all[i], model[r.IntN(len(model))])
		}
	}
	return all
}

const (
	expertCount = 16
	expertsUsed = 2
	attention   = 1024 * kib
	expertSize  = 512 * kib
)

func expertModel() int64 { return layers * (4*attention + expertCount*3*expertSize) }

// experts is a mixture of experts: each pass reads the attention of each layer
// and two of its sixteen experts (three tensors each), which are drawn by Zipf
// weights over a ranking that drifts: after each pass some experts trade places.
func experts(r *rand.Rand) [][]access {
	perLayer := 4 + 3*expertCount
	ranking := make([][]int, layers)
	for l := range ranking {
		ranking[l] = r.Perm(expertCount)
	}
	all := make([][]access, passes)
	for i := range all {
		for l := range layers {
			base := l * perLayer
			for k := range 4 {
				all[i] = append(all[i], access{base + k, attention})
			}
			for _, e := range draw(r, ranking[l]) {
				for k := range 3 {
					all[i] = append(all[i], access{base + 4 + 3*e + k, expertSize})
				}
			}
			x, y := r.IntN(expertCount), r.IntN(expertCount)
			ranking[l][x], ranking[l][y] = ranking[l][y], ranking[l][x]
		}
	}
	return all
}

// draw picks expertsUsed different experts, the i-th of ranking with a weight of
// 1/(i+1).
func draw(r *rand.Rand, ranking []int) []int {
	var picked []int
	for len(picked) < expertsUsed {
		var sum float64
		for i := range ranking {
			sum += 1 / float64(i+1)
		}
		x := r.Float64() * sum
		i := 0
		for ; i < len(ranking)-1 && x > 1/float64(i+1); i++ {
			x -= 1 / float64(i+1)
		}
		if len(picked) == 0 || picked[0] != ranking[i] {
			picked = append(picked, ranking[i])
		}
	}
	return picked
}

// mixed changes its ways: sweeps, then a working set of one fifth of the model
// with excursions, then forward and backward, then random.
func mixed(r *rand.Rand) [][]access {
	model := dense()
	sweeps, back, chance := cyclic(), thereAndBack(), random(r)
	all := make([][]access, passes)
	for i := range all {
		switch {
		case i < 6:
			all[i] = sweeps[i]
		case i < 11:
			for range model {
				k := int(math.Pow(r.Float64(), 3) * float64(len(model)))
				all[i] = append(all[i], model[k])
			}
		case i < 16:
			all[i] = back[i]
		default:
			all[i] = chance[i]
		}
	}
	return all
}
