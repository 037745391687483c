package settings

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/dustin/go-humanize"
)

// autoPercent is what "auto" stands for.
const autoPercent = 25

// ParseSize reads a number of bytes: 4GiB, 500MB, 1048576, a percentage of
// what memory says this process may use, such as 25%, or auto, which is 25%.
func ParseSize(s string, memory func() (uint64, error)) (int64, error) {
	s = strings.TrimSpace(s)
	if s == "auto" {
		s = strconv.Itoa(autoPercent) + "%"
	}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		return percentage(number, memory)
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: want one such as 4GiB, 25%%, 0 or auto", s)
	}
	return int64(n), nil
}

func percentage(number string, memory func() (uint64, error)) (int64, error) {
	p, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(p >= 0 && p <= 100) {
		return 0, fmt.Errorf("%q is not a percentage from 0%% to 100%%", number+"%")
	}
	total, err := memory()
	if err != nil {
		return 0, fmt.Errorf("%s%% of an unknown amount of memory: %w", number, err)
	}
	return int64(p / 100 * min(float64(total), math.MaxInt64/2)), nil
}

// Memory is how many bytes this process may use: the limit of its cgroup, else
// what the machine has.
func Memory() (uint64, error) {
	system, err := memlimit.FromSystem()
	limit, cerr := memlimit.FromCgroup()
	switch {
	case cerr == nil && (err != nil || limit < system):
		return limit, nil
	case err == nil:
		return system, nil
	}
	return 0, errors.Join(cerr, err)
}
