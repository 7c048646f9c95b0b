// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// replacePart puts text between the markers of a part in a document; a part that is not
// there yet goes to its end. Everything else stays as it is.
func replacePart(file, part, text string) error {
	doc, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := replaced(string(doc), part, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

func replaced(doc, part, text string) (string, error) {
	begin, end := fmt.Sprintf("<!-- bench/limit: %s -->\n", part), fmt.Sprintf("<!-- end: %s -->\n", part)
	block := begin + strings.TrimSpace(text) + "\n" + end
	head, rest, ok := strings.Cut(doc, begin)
	if !ok {
		return strings.TrimRight(doc, "\n") + "\n\n" + block, nil
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no %q", strings.TrimSpace(end))
	}
	return head + block + tail, nil
}
