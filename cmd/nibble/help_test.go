package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// A script that breaks off may well load, and completes nothing.
func TestCompletionOnAFullDisk(t *testing.T) {
	for _, shell := range shells {
		for _, args := range [][]string{{"completion", shell}, {"completion", shell, "--no-descriptions"}} {
			var talk bytes.Buffer
			if code := run(context.Background(), args, &app{stdout: fullDisk{}, stderr: &talk}); code != exitFailed || !strings.Contains(talk.String(), "disk full") {
				t.Errorf("nibble %v: exit %d, %q", args, code, &talk)
			}
		}
	}
}
