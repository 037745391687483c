package main

import (
	"fmt"

	"nibble/cmd/nibble/internal/table"
)

// total adds the rows up.
func (s *sweep) total() layerRow {
	sum := layerRow{Name: "total"}
	for _, r := range s.rows {
		sum.Tensors += r.Tensors
		sum.Bytes += r.Bytes
		sum.Seconds += r.Seconds
		sum.Hits += r.Hits
		sum.Misses += r.Misses
		sum.Views += r.Views
		sum.Failed += r.Failed
	}
	return sum
}

func (s *sweep) stats(sum layerRow) sweepStats {
	st := s.st.Stats()
	return sweepStats{
		Hits: sum.Hits, Misses: sum.Misses, Views: sum.Views, Tiled: s.tiled, Failed: sum.Failed,
		Ahead: st.Prefetched, Evictions: st.Evictions, Decoded: st.Decoded,
		Peak: st.Peak, Budget: st.Budget, Seconds: sum.Seconds,
	}
}

// finish prints what follows the rows: a line of totals and the statistics, or
// with out nil everything as one JSON document.
func (s *sweep) finish(out *table.Table) error {
	sum := s.total()
	stats := s.stats(sum)
	if out == nil {
		if s.rows == nil {
			s.rows = []layerRow{}
		}
		return s.app.printJSON(struct {
			Layers []layerRow `json:"layers"`
			Stats  sweepStats `json:"stats"`
		}{s.rows, stats})
	}
	if err := sum.print(out, ""); err != nil {
		return err
	}
	_, err := fmt.Fprint(s.app.stdout, stats.text())
	return err
}

func (st sweepStats) text() string {
	text := fmt.Sprintf("\npeak %s of %s, decoded %s", sizeText(st.Peak), sizeText(st.Budget), sizeText(st.Decoded))
	if st.Decoded > 0 && st.Seconds > 0 {
		text += fmt.Sprintf(" at %s/s", sizeText(int64(float64(st.Decoded)/st.Seconds)))
	}
	text += fmt.Sprintf("\n%s, %s, %s, %s", countText(st.Hits, "hit"), missText(st.Misses), countText(st.Views, "view"),
		countText(st.Evictions, "eviction"))
	if all := st.Hits + st.Misses; all > 0 {
		text += fmt.Sprintf("; hit rate %.1f%%", 100*float64(st.Hits)/float64(all))
		if st.Ahead > 0 {
			// A hit on what was decoded ahead saved waiting, and no decode.
			kept := max(int64(st.Hits)-st.Ahead, 0)
			text += fmt.Sprintf(", %.1f%% without the %d decoded ahead", 100*float64(kept)/float64(all), st.Ahead)
		}
	}
	if st.Tiled > 0 {
		text += fmt.Sprintf("; %d larger than the budget, decoded piece by piece", st.Tiled)
	}
	if st.Failed > 0 {
		text += fmt.Sprintf("; %d failed", st.Failed)
	}
	return text + "\n"
}

func missText(n int) string {
	if n == 1 {
		return "1 miss"
	}
	return fmt.Sprintf("%d misses", n)
}
