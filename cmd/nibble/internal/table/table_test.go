package table_test

import (
	"errors"
	"strings"
	"testing"

	"nibble/cmd/nibble/internal/table"
)

// Names are padded behind, numbers before, and a wide character counts as the
// two cells it takes: otherwise the columns behind 層 would not line up.
func TestAlignment(t *testing.T) {
	var b strings.Builder
	tab := table.New(&b, table.Column{Title: "layer"}, table.Column{Title: "n", Align: table.Right}, table.Column{Title: "what"})
	tab.Row("層.0", "7", "x")
	tab.Row("model.10", "1234")
	if err := tab.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"layer        n  what\n" +
		"層.0         7  x\n" +
		"model.10  1234\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// A table that is printed row by row has its titles once, and a preset width
// keeps later rows in line.
func TestFlushRowByRow(t *testing.T) {
	var b strings.Builder
	tab := table.New(&b, table.Column{Title: "name", Width: 6}, table.Column{Title: "n", Align: table.Right, Width: 3})
	for _, row := range [][]string{{"a", "1"}, {"long.n", "100"}} {
		tab.Row(row...)
		if err := tab.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	want := "" +
		"name      n\n" +
		"a         1\n" +
		"long.n  100\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestFlushReportsTheWriter(t *testing.T) {
	if err := table.New(fullDisk{}, table.Column{Title: "a"}).Flush(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// One endless name does not widen the rows of the others.
func TestLongCellsStickOut(t *testing.T) {
	var b strings.Builder
	tab := table.New(&b, table.Column{Title: "name"}, table.Column{Title: "n", Align: table.Right})
	tab.Row(strings.Repeat("x", 5000), "1")
	tab.Row("short", "2")
	if err := tab.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if want := strings.Repeat("x", 5000) + "  1"; lines[1] != want {
		t.Errorf("the long row ends in %q", lines[1][len(lines[1])-10:])
	}
	if want := 100 + len("  2"); len(lines[2]) != want {
		t.Errorf("the short row has %d cells, want %d", len(lines[2]), want)
	}
}
