package convert

import (
	"context"
	"io"
	"io/fs"
	"os"
)

// output is one file to write.
type output struct {
	name    string // in the folder of the target
	kind    kind
	content content
	source  fs.FileInfo // of the file it is made from; nil for tensors and their index
}

// kind says what a file is to a checkpoint. It decides when it is put in place.
type kind uint8

const (
	sidecarFile  kind = iota
	shardFile         // read only if the index names it
	decidingFile      // the index, or the only file of weights
)

// content writes the bytes of a file.
type content interface {
	writeTo(ctx context.Context, f *os.File) error
}

// literal is content in memory.
type literal []byte

func (l literal) writeTo(_ context.Context, f *os.File) error {
	_, err := f.Write(l)
	return err
}

// copied is the content of the file at this path.
type copied string

func (c copied) writeTo(_ context.Context, f *os.File) error {
	src, err := os.Open(string(c))
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = io.Copy(f, src)
	return err
}
