package store

// Dir is the directory that the names of Files are relative to: the one given
// to Open, or that of the file or index given. The files of a Hugging Face
// cache are below it, in a snapshot. It is "" for a store made by OpenReaderAt.
func (st *Store) Dir() string { return st.loc.root }

// Index is the path of the index that decides which shard holds a tensor, ""
// without one.
func (st *Store) Index() string {
	if st.loc.index == nil {
		return ""
	}
	return st.loc.path
}
