package quant

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// The hash is that of the map which bitsandbytes makes on current torch, as
// recorded beside the golden vectors.
func TestDynamicMap(t *testing.T) {
	const want = "e732639a65f497b4ad684bb166a4467708255edd5207757de8b8f0c7e1fda89c"
	h := sha256.New()
	m := DynamicMap()
	if err := binary.Write(h, binary.LittleEndian, m[:]); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("sha256 of the map is %s, want %s", got, want)
	}
}
