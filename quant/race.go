//go:build race

package quant

import (
	"runtime"
	"unsafe"
)

// raceRead, raceReadScales and raceWrite tell the race detector what assembly
// does, which it cannot see into.
func raceRead(b []byte) { runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }

func raceReadScales(s []float32) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(s)), 4*len(s))
}

func raceWrite(b []byte) { runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }
