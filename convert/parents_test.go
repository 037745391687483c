package convert

import (
	"path/filepath"
	"sync"
	"testing"
)

// Conversions that run at once may make the same parents.
func TestParentsMadeAtOnce(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "a", "b", "c")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := new(stage).makeParents(dir); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
