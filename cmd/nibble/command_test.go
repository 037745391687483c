package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// The library that prints help does not look whether it could.
func TestHelpOnAFullDisk(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"sum", "--help"}, {"--version"}} {
		var talk bytes.Buffer
		if code := run(context.Background(), args, &app{stdout: fullDisk{}, stderr: &talk}); code != exitFailed || !strings.Contains(talk.String(), "disk full") {
			t.Errorf("nibble %v: exit %d, %q", args, code, &talk)
		}
	}
}
