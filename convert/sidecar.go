package convert

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"nibble/store"
	"nibble/tensor"
)

// sidecarNames are the files beside a model that a copy of it needs.
var sidecarNames = []string{
	"tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model",
	"chat_template*", "generation_config.json", "preprocessor_config.json", "processor_config.json",
}

const configName = "config.json"

// maxConfig bounds the config.json that is read, in bytes.
const maxConfig = 64 << 20

// sidecars lists what goes with the weights of a folder: nothing where the
// source is a single file, whose neighbours need not belong to it.
func sidecars(st *store.Store, asked, most tensor.DType) ([]*output, error) {
	if st.Dir() == "" {
		return nil, nil
	}
	if info, err := os.Stat(st.Path()); err != nil || !info.IsDir() && st.Index() == "" {
		return nil, err
	}
	home := folderOf(st)
	entries, err := os.ReadDir(home)
	if err != nil {
		return nil, err
	}
	var files []*output
	for _, e := range entries {
		if e.Name() != configName && !isSidecar(e.Name()) {
			continue
		}
		path := filepath.Join(home, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue // a folder of that name
		}
		f := &output{name: e.Name(), kind: sidecarFile, content: copied(path), source: info}
		if e.Name() == configName {
			if f.content, err = config(path, asked, most); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	return files, nil
}

// folderOf is the folder that the weights are in: a snapshot where st.Dir is a
// Hugging Face cache.
func folderOf(st *store.Store) string {
	if st.Index() != "" {
		return filepath.Dir(st.Index())
	}
	return filepath.Dir(filepath.Join(st.Dir(), filepath.FromSlash(st.Files()[0])))
}

func isSidecar(name string) bool {
	for _, pattern := range sidecarNames {
		if ok, _ := filepath.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// config is the config.json of the output.
func config(path string, asked, most tensor.DType) (literal, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxConfig)
	}
	if data, err = rewriteConfig(data, most, asked == tensor.Stored); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}
