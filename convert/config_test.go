package convert_test

import (
	"strings"
	"testing"

	"nibble/convert"
	"nibble/tensor"
)

// A config keeps all but what was true of the quantized model only.
func TestRewriteConfig(t *testing.T) {
	for _, c := range []struct {
		name, in string
		dt       tensor.DType
		keep     bool
		want     string
	}{
		{
			"set", `{"a": 1, "quantization_config": {"x": [1, {"torch_dtype": 2}]}, "torch_dtype": "float16", "z": null}`,
			tensor.BF16, false, "{\n  \"a\": 1,\n  \"torch_dtype\": \"bfloat16\",\n  \"z\": null\n}\n",
		},
		{"kept", `{"torch_dtype": "float16"}`, tensor.BF16, true, "{\n  \"torch_dtype\": \"float16\"\n}\n"},
		{"auto is no dtype", `{"torch_dtype": "auto"}`, tensor.F32, true, "{\n  \"torch_dtype\": \"float32\"\n}\n"},
		{"null is none", `{"torch_dtype": null}`, tensor.F16, true, "{\n  \"torch_dtype\": \"float16\"\n}\n"},
		{"new key", `{"dtype": "float32"}`, tensor.BF16, false, "{\n  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\"\n}\n"},
		{"new key, kept", `{"dtype": "float32"}`, tensor.BF16, true, "{\n  \"dtype\": \"float32\",\n  \"torch_dtype\": \"float32\"\n}\n"},
		{"one of both names none", `{"dtype": "float16", "torch_dtype": "auto"}`, tensor.F32, true, "{\n  \"dtype\": \"float16\",\n  \"torch_dtype\": \"float16\"\n}\n"},
		{"the other of both, inside too", `{"dtype": null, "torch_dtype": "bfloat16", "t": {"torch_dtype": null, "dtype": "float16"}}`, tensor.F32, true, "{\n  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\",\n  \"t\": {\n    \"torch_dtype\": \"float16\",\n    \"dtype\": \"float16\"\n  }\n}\n"},
		{"both keys", `{"dtype": "float32", "torch_dtype": "float32"}`, tensor.F16, false, "{\n  \"dtype\": \"float16\",\n  \"torch_dtype\": \"float16\"\n}\n"},
		{"a byte order mark", "\ufeff{\"torch_dtype\": null}", tensor.F16, true, "{\n  \"torch_dtype\": \"float16\"\n}\n"},
		{
			"configs inside", `{"torch_dtype": "float16", "text_config": {"x": 1, "torch_dtype": "float32", "quantization_config": {"bits": 4}, "y": {"dtype": "auto"}}}`,
			tensor.BF16, false,
			"{\n  \"torch_dtype\": \"bfloat16\",\n  \"text_config\": {\n    \"x\": 1,\n    \"torch_dtype\": \"bfloat16\",\n    \"y\": {\n      \"dtype\": \"bfloat16\"\n    }\n  }\n}\n",
		},
		{
			"configs inside, kept", `{"dtype": "bfloat16", "vision_config": {"dtype": "float32", "torch_dtype": null}}`,
			tensor.BF16, true, "{\n  \"dtype\": \"bfloat16\",\n  \"vision_config\": {\n    \"dtype\": \"float32\",\n    \"torch_dtype\": \"float32\"\n  },\n  \"torch_dtype\": \"bfloat16\"\n}\n",
		},
		{
			"nothing added inside, and no other meaning of dtype touched", `{"dtype": "float16", "text_config": {"x":1}, "index": {"dtype": "int8"}, "list": [{"dtype": "float16"}]}`,
			tensor.F32, false, "{\n  \"dtype\": \"float32\",\n  \"text_config\": {\"x\":1},\n  \"index\": {\"dtype\": \"int8\"},\n  \"list\": [{\"dtype\": \"float16\"}],\n  \"torch_dtype\": \"float32\"\n}\n",
		},
		{
			"no floats, configs inside", `{"text_config": {"torch_dtype": "float16", "quantization_config": {}}}`,
			tensor.Stored, false, "{\n  \"text_config\": {\n    \"torch_dtype\": \"float16\"\n  }\n}\n",
		},
		{"what is no JSON inside stays", `{"torch_dtype": null, "a": {quantization_config: 1}}`, tensor.F16, false, "{\n  \"torch_dtype\": \"float16\",\n  \"a\": {quantization_config: 1}\n}\n"},
		{"added", `{"a": "b"}`, tensor.F64, true, "{\n  \"a\": \"b\",\n  \"torch_dtype\": \"float64\"\n}\n"},
		{"no floats", `{"torch_dtype": "float16"}`, tensor.Stored, false, "{\n  \"torch_dtype\": \"float16\"\n}\n"},
		{"empty", " {}\n", tensor.Stored, false, "{\n}\n"},
		{
			"as it stands", "{\"q\": \"a\\\"},{\\\\\", \"big\": 12345678901234567890.10, \"limit\": [0.0, Infinity], \"é<\": {\n    \"x\": 1\n  }, \"n\": -NaN}",
			tensor.Stored, false,
			"{\n  \"q\": \"a\\\"},{\\\\\",\n  \"big\": 12345678901234567890.10,\n  \"limit\": [0.0, Infinity],\n  \"é<\": {\n    \"x\": 1\n  },\n  \"n\": -NaN\n}\n",
		},
	} {
		got, err := convert.RewriteConfig([]byte(c.in), c.dt, c.keep)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.name, got, err, c.want)
		}
		again, err := convert.RewriteConfig(got, c.dt, c.keep)
		if err != nil || string(again) != c.want {
			t.Errorf("%s, again: %s %v", c.name, again, err)
		}
	}
	for in, want := range map[string]string{
		"": "not a JSON object", "[]": "not a JSON object", `{"a"`: "key", `{"a":`: "EOF", `{"a":}`: "unexpected", `{"a":1`: "EOF",
		`{"a":1,`: "key", `{"a":1 "b":2}`: "unexpected", `{"a":1}}`: "unexpected", `{a:1}`: "key", `{"a":"x`: "EOF", `{"a":[1}`: "EOF", `{,}`: "key", `{"a":1,}`: "key",
	} {
		if got, err := convert.RewriteConfig([]byte(in), tensor.F16, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v, want an error with %q", in, got, err, want)
		}
	}
}

// Whatever is in a config, nothing panics, and what was read is read again.
func FuzzRewriteConfig(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": "c\""}], "torch_dtype": "auto", "quantization_config": {}}`))
	f.Add([]byte(`{"a": {"dtype": null, "b": {"quantization_config": 1, "c": {"torch_dtype": "float32"}}}}`))
	f.Add([]byte(`{"a":1]`))
	f.Add([]byte(`{"\`))
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := convert.RewriteConfig(data, tensor.F16, false)
		if err != nil {
			return
		}
		twice, err := convert.RewriteConfig(once, tensor.F16, false)
		if err != nil || string(once) != string(twice) {
			t.Errorf("%q gives %q, and that %q %v", data, once, twice, err)
		}
	})
}
