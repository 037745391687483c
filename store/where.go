package store

// Dir is the directory that the names of Files are relative to: the one given
// to Open, that of the file or index given, or a snapshot in a Hugging Face
// cache. It is "" for a store made by OpenReaderAt.
func (st *Store) Dir() string { return st.loc.root }

// Index is the path of the index that decides which shard holds a tensor, ""
// without one.
func (st *Store) Index() string {
	if st.loc.index == nil {
		return ""
	}
	return st.loc.path
}
