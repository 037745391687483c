package store

import "nibble/cache"

// Cache is a cache that several stores share, such as a base model and its
// adapters: one budget for all of them.
type Cache struct{ c *cache.Cache[key] }

// NewCache makes a cache with the budget, policy, full and strict of cfg. The
// caller closes it after the stores.
func NewCache(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cache{newCache(cfg.Effective(), nil)}, nil
}

// Close gives the memory of the cache back. Leases stay valid until Release.
func (c *Cache) Close() { c.c.Close() }

// WithCache makes the store use c, whose budget and policy then hold instead of
// those of the store's Config.
func WithCache(c *Cache) Option { return func(o *options) { o.cache = c } }

func newCache(cfg Config, log func(string)) *cache.Cache[key] {
	policy, _ := cache.ParsePolicy(cfg.Policy) // Validate has looked at it
	return cache.New[key](cache.Options{
		Budget: cfg.CacheBudget, Policy: policy,
		FailWhenFull: cfg.Full == "fail", Strict: cfg.Strict, Log: log,
	})
}
