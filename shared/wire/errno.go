package wire

import "syscall"

// errnos cross by name: their numbers differ between systems. These are the
// ones that Go defines everywhere; any other crosses as its text.
var errnos = map[string]syscall.Errno{
	"E2BIG": syscall.E2BIG, "EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN, "EBADF": syscall.EBADF,
	"EBUSY": syscall.EBUSY, "ECHILD": syscall.ECHILD, "ECONNREFUSED": syscall.ECONNREFUSED,
	"ECONNRESET": syscall.ECONNRESET, "EDEADLK": syscall.EDEADLK, "EDOM": syscall.EDOM,
	"EDQUOT": syscall.EDQUOT, "EEXIST": syscall.EEXIST, "EFAULT": syscall.EFAULT, "EFBIG": syscall.EFBIG,
	"EHOSTUNREACH": syscall.EHOSTUNREACH, "EILSEQ": syscall.EILSEQ, "EINTR": syscall.EINTR,
	"EINVAL": syscall.EINVAL, "EIO": syscall.EIO, "EISDIR": syscall.EISDIR, "ELOOP": syscall.ELOOP,
	"EMFILE": syscall.EMFILE, "EMLINK": syscall.EMLINK, "ENAMETOOLONG": syscall.ENAMETOOLONG,
	"ENETUNREACH": syscall.ENETUNREACH, "ENFILE": syscall.ENFILE, "ENODEV": syscall.ENODEV,
	"ENOENT": syscall.ENOENT, "ENOEXEC": syscall.ENOEXEC, "ENOLCK": syscall.ENOLCK,
	"ENOMEM": syscall.ENOMEM, "ENOSPC": syscall.ENOSPC, "ENOSYS": syscall.ENOSYS,
	"ENOTCONN": syscall.ENOTCONN, "ENOTDIR": syscall.ENOTDIR, "ENOTEMPTY": syscall.ENOTEMPTY,
	"ENOTSUP": syscall.ENOTSUP, "ENXIO": syscall.ENXIO, "EOPNOTSUPP": syscall.EOPNOTSUPP,
	"EOVERFLOW": syscall.EOVERFLOW, "EPERM": syscall.EPERM, "EPIPE": syscall.EPIPE,
	"ERANGE": syscall.ERANGE, "EROFS": syscall.EROFS, "ESPIPE": syscall.ESPIPE, "ESRCH": syscall.ESRCH,
	"ESTALE": syscall.ESTALE, "ETIMEDOUT": syscall.ETIMEDOUT, "ETXTBSY": syscall.ETXTBSY,
	"EXDEV": syscall.EXDEV,
}

var errnoNames = func() map[syscall.Errno]string {
	names := make(map[syscall.Errno]string, len(errnos))
	for name, errno := range errnos {
		// Where two names share a number, the shorter one is the one in use
		// (ENOTSUP, not EOPNOTSUPP): the map's order must not decide.
		if old, ok := names[errno]; !ok || len(name) < len(old) {
			names[errno] = name
		}
	}
	return names
}()
