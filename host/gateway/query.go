package gateway

import (
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// readQuery parses a request's query strictly, where its operation has parameters
// there: one that does not say plainly what is wanted, such as a purge without a
// value, is not guessed at.
func readQuery(ctx huma.Context) error {
	e, u := exchangeOf(ctx), ctx.URL()
	if e == nil || u.RawQuery == "" {
		return nil
	}
	var err error
	if e.query, err = parseQuery(u.RawQuery); err != nil {
		return errInvalid("value_error", "is not percent-encoded as a query is", nil, "query")
	}
	for _, parameter := range ctx.Operation().Parameters {
		if parameter.In != "query" {
			continue
		}
		values := e.query[parameter.Name]
		if len(values) > 1 {
			return errInvalid("value_error", "is there more than once", nil, "query", parameter.Name)
		}
		if len(values) == 1 && values[0] == "" && parameter.Schema != nil {
			switch parameter.Schema.Type {
			case huma.TypeBoolean:
				return errInvalid("bool_parsing", "want true or false", "", "query", parameter.Name)
			case huma.TypeInteger:
				return errInvalid("int_parsing", "want a whole number", "", "query", parameter.Name)
			}
		}
	}
	return nil
}

// parseQuery is url.ParseQuery, but for a semicolon: that is data, as clients that
// follow today's rules send it.
func parseQuery(text string) (url.Values, error) {
	values := make(url.Values)
	for pair := range strings.SplitSeq(text, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		if err != nil {
			return nil, err
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, err
		}
		values.Add(key, value)
	}
	return values, nil
}
