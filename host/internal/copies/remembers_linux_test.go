package copies

// remembers says that what was verified need not be read again.
const remembers = true
