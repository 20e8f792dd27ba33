package posix_test

func playRole() {}
