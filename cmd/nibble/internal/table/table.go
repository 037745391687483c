// Package table prints aligned columns: text to the left, numbers to the
// right, widths counted in terminal cells.
package table

import (
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Align is the side of a column that its cells keep to.
type Align uint8

// Text keeps to the left, numbers to the right.
const (
	Left Align = iota
	Right
)

// Column describes one column.
type Column struct {
	Title string
	Align Align
	Width int // least width in cells; 0 for that of the title
}

// gap separates columns.
const gap = "  "

// Table collects rows until Flush prints them, aligned. Columns only grow: a
// caller who knows how wide they get may flush after every row.
type Table struct {
	w       io.Writer
	columns []Column
	rows    [][]string
	headed  bool
}

// New makes a table that prints to w.
func New(w io.Writer, columns ...Column) *Table {
	for i := range columns {
		columns[i].fit(columns[i].Title)
	}
	return &Table{w: w, columns: columns}
}

// most is the widest that a cell makes its column. What is longer sticks out of
// its own row and leaves the others alone.
const most = 100

func (c *Column) fit(cell string) { c.Width = max(c.Width, min(Width(cell), most)) }

// Row adds a row. Missing cells at its end are empty.
func (t *Table) Row(cells ...string) {
	t.rows = append(t.rows, cells)
	for i, c := range cells {
		t.columns[i].fit(c)
	}
}

// Flush prints the rows since the last Flush, and the titles before the first.
func (t *Table) Flush() error {
	var b strings.Builder
	if !t.headed {
		t.headed = true
		titles := make([]string, len(t.columns))
		for i, c := range t.columns {
			titles[i] = c.Title
		}
		t.line(&b, titles)
	}
	for _, r := range t.rows {
		t.line(&b, r)
	}
	t.rows = nil
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *Table) line(b *strings.Builder, cells []string) {
	var line strings.Builder
	for i, cell := range cells {
		if i > 0 {
			line.WriteString(gap)
		}
		pad := strings.Repeat(" ", max(t.columns[i].Width-Width(cell), 0))
		if t.columns[i].Align == Right {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " "))
	b.WriteByte('\n')
}

// cells measures text. Characters whose width depends on the font count as
// narrow: what is printed must not depend on the locale.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// Width is the number of terminal cells that s takes.
func Width(s string) int { return cells.StringWidth(s) }
