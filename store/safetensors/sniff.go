package safetensors

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"nibble/internal/rule"
)

// Kind is what a file is, judged by its first bytes and not by its name:
// hub caches hold blobs without extension, and failed downloads leave pages
// under a model's name.
type Kind uint8

// The kinds that Sniff tells apart.
const (
	Unknown     Kind = iota // none of the below; Read says what is wrong with it
	Safetensors             // a plausible header length, then '{'
	Zip                     // a torch checkpoint since 1.6, or any other zip
	Pickle                  // a torch checkpoint before 1.6, or any other pickle
	Tar                     // a torch checkpoint of the first releases
	LFSPointer              // the text that Git LFS leaves in place of a file
	HTML                    // an HTML or XML page
	Empty                   // no bytes at all
)

// SniffLen is how many bytes of a file Sniff looks at: one tar block.
const SniffLen = 512

func (k Kind) String() string {
	switch k {
	case Safetensors:
		return "safetensors file"
	case Zip:
		return "zip archive"
	case Pickle:
		return "pickle"
	case Tar:
		return "tar archive"
	case LFSPointer:
		return "Git LFS pointer"
	case HTML:
		return "HTML page"
	case Empty:
		return "empty file"
	}
	return "unknown file"
}

// Sniff tells what a file of size bytes is. The prefix is its first
// min(size, SniffLen) bytes; with fewer, a kind may go unrecognised.
//
// A zip archive that begins with foreign bytes is Unknown: its directory is at
// the end of the file.
func Sniff(prefix []byte, size int64) Kind {
	switch {
	case size == 0:
		return Empty
	case isSafetensors(prefix): // first: its length field may spell another magic
		return Safetensors
	case bytes.HasPrefix(prefix, []byte("PK\x03\x04")), bytes.HasPrefix(prefix, []byte("PK\x05\x06")):
		return Zip
	case bytes.HasPrefix(prefix, []byte(lfsMagic)):
		return LFSPointer
	case isMarkup(prefix):
		return HTML
	case isTar(prefix): // before pickle: a tar begins with a name of any letters
		return Tar
	case isPickle(prefix):
		return Pickle
	}
	return Unknown
}

// isSafetensors does not ask whether the file holds its whole header: a file
// cut short is to be called that.
func isSafetensors(prefix []byte) bool {
	return len(prefix) > prefixLen && prefix[prefixLen] == '{' && binary.LittleEndian.Uint64(prefix) <= MaxHeader
}

const lfsMagic = "version https://git-lfs.github.com/spec/"

// lfsSize is the size of the file that a Git LFS pointer stands for.
func lfsSize(prefix []byte) (size int64, ok bool) {
	for line := range bytes.Lines(prefix) {
		if v, found := bytes.CutPrefix(line, []byte("size ")); found {
			size, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return size, err == nil && size >= 0
		}
	}
	return 0, false
}

// isMarkup reports whether the text opens as a page does, after a byte order
// mark and white space.
func isMarkup(prefix []byte) bool {
	text := bytes.TrimLeft(bytes.TrimPrefix(prefix, []byte("\ufeff")), " \t\r\n")
	for _, tag := range []string{"<!doctype", "<html", "<head", "<body", "<?xml", "<!--"} {
		if len(text) >= len(tag) && bytes.EqualFold(text[:len(tag)], []byte(tag)) {
			return true
		}
	}
	return false
}

func isTar(prefix []byte) bool {
	const at = 257 // of the magic, in POSIX and GNU headers alike
	return len(prefix) >= at && bytes.HasPrefix(prefix[at:], []byte("ustar"))
}

// isPickle reports whether the bytes open as a pickle does: with PROTO, or,
// before protocol 2, with one of torch's legacy magic number or a GLOBAL.
func isPickle(prefix []byte) bool {
	if len(prefix) < 2 {
		return false
	}
	if prefix[0] == 0x80 {
		return true
	}
	return bytes.HasPrefix(prefix, []byte("L119547037146038801333356L\n")) || isGlobal(prefix)
}

// isGlobal reports whether the bytes are the opcode GLOBAL and its two
// arguments, lines with the names of a module and of a thing in it.
func isGlobal(prefix []byte) bool {
	if prefix[0] != 'c' {
		return false
	}
	module, rest, ok := bytes.Cut(prefix[1:], []byte("\n"))
	name, _, _ := bytes.Cut(rest, []byte("\n"))
	return ok && isDotted(module) && isDotted(name)
}

func isDotted(name []byte) bool {
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.':
		default:
			return false
		}
	}
	return len(name) > 0
}

// notSafetensors is the error for a file that is certainly something else.
// Unknown gets none: what is wrong with its length field says more.
func notSafetensors(k Kind, prefix []byte) error {
	switch k {
	case Empty:
		return rule.New(rule.NotSafetensors, "empty file").At(0)
	case LFSPointer:
		if n, ok := lfsSize(prefix); ok {
			return rule.New(rule.NotSafetensors, "Git LFS pointer, not the file of %d bytes that it stands for: run git lfs pull", n).At(0)
		}
		return rule.New(rule.NotSafetensors, "Git LFS pointer, not the file that it stands for: run git lfs pull").At(0)
	case HTML:
		return rule.New(rule.NotSafetensors, "HTML page, not a safetensors file: download it again").At(0)
	case Zip, Pickle, Tar:
		return rule.New(rule.NotSafetensors, "%s, not a safetensors file: perhaps a torch checkpoint under this name", k).At(0)
	}
	return nil
}
