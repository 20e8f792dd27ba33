package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// tokenLength is that of a session's own token: 32 bytes in base64url.
const tokenLength = 43

// token is a session's own. It follows from the service's token and the record, so
// that nothing secret is stored, and every gateway knows it.
func (m *Manager) token(r store.Record) string {
	mac := hmac.New(sha256.New, []byte(m.config.Token))
	mac.Write([]byte("berth session\x00" + r.ID + "\x00" + r.Nonce))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// newNonce makes the tokens of two sessions of one id differ.
func newNonce() string { return randomHex(16) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Authorize checks a client's token: the service's, or that of the session. For an
// empty id only the service's will do. A session that is not there is Unauthorized
// to all but the service's token, and nothing else is told of it here: see
// [Manager.Get].
func (m *Manager) Authorize(ctx context.Context, token, id string) error {
	unauthorized := &Error{Kind: Unauthorized, Text: "Invalid or missing sandbox token"}
	if same(token, m.config.Token) {
		return nil
	}
	// No look at the store for what cannot be a token: that would cost us more than
	// it costs whoever sends it.
	if id == "" || len(token) != tokenLength {
		return unauthorized
	}
	r, err := m.st.Get(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return storeError(err)
	}
	if !same(token, m.token(r)) || err != nil || !r.State.Open() {
		return unauthorized
	}
	return nil
}

// same compares in a time that tells nothing of either, their lengths included.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
