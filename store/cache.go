package store

import "nibble/cache"

// Cache is a cache that several stores share, such as a base model and its
// adapters: one budget for all of them.
type Cache struct{ c *cache.Cache[key] }

// NewCache makes a cache with the budget, policy, full and strict of cfg. The
// caller closes it after the stores. The other fields of cfg have no effect. log
// receives one line when a caller has waited long for the budget; nil means
// silence.
func NewCache(cfg Config, log func(line string)) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cache{newCache(cfg.Effective(), log)}, nil
}

// Close gives the memory of the cache back. Leases stay valid until Release.
func (c *Cache) Close() { c.c.Close() }

// WithCache makes the store use c, whose budget, policy and log then hold
// instead of those of the store's Config and options.
func WithCache(c *Cache) Option { return func(o *options) { o.cache = c } }

func newCache(cfg Config, log func(string)) *cache.Cache[key] {
	policy, _ := cache.ParsePolicy(cfg.Policy) // Validate has looked at it
	return cache.New[key](cache.Options{
		Budget: max(cfg.CacheBudget, 0), Policy: policy,
		FailWhenFull: cfg.Full == "fail", Strict: cfg.Strict, Here: hereBytes, Log: log,
	})
}
