package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"nibble/internal/testkit"
	"nibble/store/safetensors"
	"nibble/tensor"
)

// slowConvert starts a conversion to dir/out that takes long, with a file to
// sync for each of many tensors, and waits until it has begun to write.
func slowConvert(t *testing.T, dir string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	if testkit.Emulated() {
		t.Skip("an emulator runs the test, and nothing that the test starts")
	}
	t.Helper()
	var tensors []safetensors.Tensor
	for i := range 5000 {
		tensors = append(tensors, safetensors.Tensor{Name: fmt.Sprint("t", i), DType: tensor.U8})
	}
	layout, err := safetensors.Encode(tensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(dir, "in.safetensors")
	if err := os.WriteFile(in, append(layout.Header, make([]byte, len(tensors))...), 0o666); err != nil {
		t.Fatal(err)
	}
	stderr = new(bytes.Buffer)
	// The test binary is the command when it is called so: see TestMain.
	cmd = &exec.Cmd{
		Path: os.Args[0], Dir: dir, Stderr: stderr,
		Args: []string{"nibble", "convert", "in.safetensors", "-o", "deep/out", "--max-shard-size", "1B"},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if staged, _ := filepath.Glob(filepath.Join(dir, "deep", ".out.*.tmp", "model-00003-*")); len(staged) > 0 {
			return cmd, stderr
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("nothing was staged: %s", stderr)
	return nil, nil
}

// An interrupt ends a conversion with code 130, leaves nothing, and the source
// as it was.
func TestConvertInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	dir := t.TempDir()
	cmd, stderr := slowConvert(t, dir)
	before, err := os.ReadFile(filepath.Join(dir, "in.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stderr.String() != "nibble: interrupted\n" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "in.safetensors"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the source changed: %v", err)
	}
}

// A killed conversion leaves no checkpoint, only its staging folder, and the
// next one names it.
func TestConvertKilled(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := slowConvert(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	entries, err := os.ReadDir(filepath.Join(dir, "deep"))
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), ".out.") {
		t.Fatalf("left behind: %v %v", entries, err)
	}
	again := &exec.Cmd{Path: os.Args[0], Dir: dir, Args: []string{"nibble", "convert", "in.safetensors", "-o", "deep/out"}}
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), entries[0].Name()+" is of a conversion that was killed") {
		t.Errorf("%v, %s", err, out)
	}
}
