package transfer

// openNonblock is nothing here: there are no FIFOs in folders.
const openNonblock = 0
