package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/berth-dev/berth/shared/wire"
)

// byHand answers people who start a plugin themselves.
func byHand(def definition, args []string, out, errOut io.Writer) (status int) {
	name := wire.BinaryPrefix + def.name
	switch {
	case len(args) == 1 && args[0] == "--version":
		return printed(fmt.Fprintf(out, "%s %s (protocol %d)\n", name, def.version, wire.ProtocolV1))
	case len(args) == 1 && args[0] == "--schema":
		schema, err := def.schema()
		if err != nil {
			fmt.Fprintf(errOut, "%s: %v\n", name, err)
			return exitFailed
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, schema.text, "", "  "); err != nil {
			fmt.Fprintf(errOut, "%s: schema of its configuration: %v\n", name, err)
			return exitFailed
		}
		return printed(fmt.Fprintln(out, pretty.String()))
	}
	usage := fmt.Sprintf(`%s %s is a plugin of Berth. A Berth host starts it by itself,
for example: berth open %s

By hand it only tells about itself:
  --version  its version
  --schema   the JSON Schema of its configuration
`, name, def.version, def.name)
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		return printed(fmt.Fprint(out, usage))
	}
	fmt.Fprint(errOut, usage)
	return exitUsage
}

func printed(_ int, err error) (status int) {
	if err != nil {
		return exitFailed
	}
	return 0
}
