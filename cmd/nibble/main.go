// Command nibble opens checkpoints written with bitsandbytes quantization, and
// plain ones, and decodes them lazily within a byte budget.
//
// Data goes to standard output, talk to standard error. The exit code is 0 when
// all went well, 1 when verify has findings, 2 for an error of use, 3 when a
// file cannot be opened or a tensor cannot be decoded.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(interruptible(func(ctx context.Context) int {
		return run(ctx, os.Args[1:], &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()})
	}))
}

// interruptible cancels the context of f at the first signal to end. A second
// one kills the process, in case f does not listen.
func interruptible(f func(context.Context) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return f(ctx)
}
