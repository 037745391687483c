package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

// lustreMagic is not in x/sys: the file system is not in the kernel's tree.
const lustreMagic = 0x0bd00bd0

// networkFS names the network file system that file is on, or is "". Every
// FUSE file system counts: what is behind it is a process that may hang or die.
func networkFS(file *os.File) string {
	var st unix.Statfs_t
	err := control(file, func(fd int) error { return unix.Fstatfs(fd, &st) })
	if err != nil {
		return ""
	}
	return networkName(uint32(st.Type)) // the width and sign of Type differ by architecture
}

func networkName(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "smb"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.AFS_FS_MAGIC, unix.AFS_SUPER_MAGIC:
		return "afs"
	case lustreMagic:
		return "lustre"
	}
	return ""
}

const haveFadvise = true

func fadvise(file *os.File, a Advice, off, n int64) error {
	advice := unix.FADV_NORMAL
	switch a {
	case WillNeed:
		advice = unix.FADV_WILLNEED
	case DontNeed:
		advice = unix.FADV_DONTNEED
	case Random:
		advice = unix.FADV_RANDOM
	case Sequential:
		advice = unix.FADV_SEQUENTIAL
	}
	return control(file, func(fd int) error { return unix.Fadvise(fd, off, n, advice) })
}

// control calls op with file's descriptor, which stays open meanwhile.
func control(file *os.File, op func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	if err := raw.Control(func(fd uintptr) { opErr = op(int(fd)) }); err != nil {
		return err
	}
	return opErr
}
