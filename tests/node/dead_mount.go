// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// DeadMount is a file system that takes every request and answers none, like the mount of a server that
// went away: who touches anything beneath it waits, after SIGKILL in uninterruptible sleep. What it is,
// a FUSE file system (linux/fuse.h), can be mounted and looked at from above without a request.
type DeadMount struct {
	Dir  string
	fd   int
	lock sync.Mutex
	held [][]byte // unanswered requests
	live bool
	file []byte // what is in the only file
}

// Requests that are answered by themselves; all others, but for those without an answer, with ENOSYS.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseMkdir       = 9
	fuseOpen        = 14
	fuseWrite       = 16
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42
)

// NewDeadMount mounts one at dir, until the test ends.
func NewDeadMount(t testing.TB, dir string) *DeadMount {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENODEV {
		t.Skip("the kernel has no FUSE")
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd))
	}
	if err != nil {
		t.Fatalf("a dead mount at %s: %v", dir, err)
	}
	d := &DeadMount{Dir: dir, fd: fd}
	ended := make(chan bool)
	go func() {
		d.serve()
		close(ended)
	}()
	t.Cleanup(func() {
		// by force: whoever waits gets an error
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
		<-ended
		unix.Close(fd)
	})
	return d
}

// Wanted waits until somebody waits for an answer.
func (d *DeadMount) Wanted(t testing.TB) {
	t.Helper()
	Eventually(t, 10*time.Second, func() error {
		d.lock.Lock()
		defer d.lock.Unlock()
		if len(d.held) == 0 {
			return fmt.Errorf("nobody wants anything of %s", d.Dir)
		}
		return nil
	})
}

// Revive answers all that wait, and from now on at once: every name is an empty directory, but those
// that end in ".log" are all the same file.
func (d *DeadMount) Revive() {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.live = true
	for _, request := range d.held {
		d.answer(request)
	}
	d.held = nil
}

// Die answers nothing from now on.
func (d *DeadMount) Die() {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.live = false
}

// File is what was written to the file.
func (d *DeadMount) File() []byte {
	d.lock.Lock()
	defer d.lock.Unlock()
	return bytes.Clone(d.file)
}

func (d *DeadMount) serve() {
	buffer := make([]byte, 128<<10)
	for {
		n, err := unix.Read(d.fd, buffer)
		if err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN {
			continue
		}
		if err != nil { // unmounted
			return
		}
		request := append([]byte{}, buffer[:n]...)
		d.lock.Lock()
		switch opcode(request) {
		case fuseForget, fuseBatchForget, fuseInterrupt:
		case fuseInit:
			d.answer(request)
		default:
			if d.live {
				d.answer(request)
			} else {
				d.held = append(d.held, request)
			}
		}
		d.lock.Unlock()
	}
}

func opcode(request []byte) uint32 {
	return binary.NativeEndian.Uint32(request[4:])
}

// Numbers of inodes.
const (
	directory = 2
	file      = 3
)

// answer ignores what happens to it: the one who asked may be gone.
func (d *DeadMount) answer(request []byte) {
	le := binary.NativeEndian
	node, rest := le.Uint64(request[16:]), request[40:]
	var body []byte
	failure := unix.Errno(0)
	switch opcode(request) {
	case fuseInit: // struct fuse_init_out
		body = make([]byte, 64)
		le.PutUint32(body, 7)
		le.PutUint32(body[4:], 31)
		le.PutUint32(body[20:], 4096) // max_write
	case fuseLookup: // struct fuse_entry_out
		node = directory
		if bytes.HasSuffix(rest, []byte(".log\x00")) {
			node = file
		}
		body = append(make([]byte, 40), d.attributes(node)...)
		le.PutUint64(body, node)
	case fuseSetattr: // struct fuse_setattr_in
		if le.Uint32(rest)&8 != 0 {
			d.resize(int(le.Uint64(rest[16:])))
		}
		body = append(make([]byte, 16), d.attributes(node)...)
	case fuseGetattr: // struct fuse_attr_out
		body = append(make([]byte, 16), d.attributes(node)...)
	case fuseOpen: // struct fuse_open_out
		body = make([]byte, 16)
	case fuseWrite: // struct fuse_write_in and fuse_write_out
		begin, size := int(le.Uint64(rest[8:])), int(le.Uint32(rest[16:]))
		if len(d.file) < begin+size {
			d.resize(begin + size)
		}
		copy(d.file[begin:], rest[40:40+size])
		body = make([]byte, 8)
		le.PutUint32(body, uint32(size))
	case fuseMkdir:
		failure = unix.EEXIST
	default:
		failure = unix.ENOSYS
	}
	header := make([]byte, 16)
	le.PutUint32(header, uint32(16+len(body)))
	le.PutUint32(header[4:], uint32(-int32(failure)))
	copy(header[8:], request[8:16])
	_, _ = unix.Write(d.fd, append(header, body...))
}

func (d *DeadMount) resize(size int) {
	d.file = append(d.file, make([]byte, max(0, size-len(d.file)))...)[:size]
}

// attributes is a struct fuse_attr.
func (d *DeadMount) attributes(node uint64) []byte {
	attr := make([]byte, 88)
	mode, links := uint32(unix.S_IFDIR|0o755), uint32(2)
	if node == file {
		mode, links = unix.S_IFREG|0o640, 1
		binary.NativeEndian.PutUint64(attr[8:], uint64(len(d.file)))
	}
	binary.NativeEndian.PutUint64(attr, node)
	binary.NativeEndian.PutUint32(attr[60:], mode)
	binary.NativeEndian.PutUint32(attr[64:], links)
	return attr
}
