// The journey with the client from oapi-codegen. Prints it as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"journey/oapi"
)

var after = regexp.MustCompile(`[?&]after=(\d+)`)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	url, user, password := os.Args[1], os.Args[2], os.Args[3]
	ctx := context.Background()
	api := must(oapi.NewClientWithResponses(url))

	wrong := must(api.IssueTokenWithResponse(ctx, nil, oapi.Credentials{Id: user, Pw: "wrong"}))
	token := must(api.IssueTokenWithResponse(ctx, nil, oapi.Credentials{Id: user, Pw: password}))
	bearer := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token.JSON200.Token)
		return nil
	}
	basic := func(_ context.Context, req *http.Request) error {
		req.SetBasicAuth(user, password)
		return nil
	}
	greeting := must(api.GreetWithResponse(ctx, nil))
	noNote := must(api.ReadNoteWithResponse(ctx, nil))
	note := must(api.ReadNoteWithResponse(ctx, nil, bearer))
	protected := must(api.GreetCallerWithResponse(ctx, nil, basic))

	fields := oapi.UserFields{Name: "Ada", Email: "ada@example.com"}
	created := must(api.CreateUserWithResponse(ctx, nil, fields, bearer))
	ada := created.JSON201.Id
	tag := created.HTTPResponse.Header.Get("ETag")
	taken := must(api.CreateUserWithResponse(ctx, nil, fields, bearer))
	for _, name := range []string{"Grace", "Alan"} {
		fields := oapi.UserFields{Name: name, Email: strings.ToLower(name) + "@example.com"}
		must(api.CreateUserWithResponse(ctx, nil, fields, bearer))
	}
	read := must(api.ReadUserWithResponse(ctx, ada, nil, bearer))
	name := "Ada Lovelace"
	change := oapi.UserChange{Name: &name}
	ifMatch := &oapi.PatchUserParams{IfMatch: &tag}
	patched := must(api.PatchUserWithResponse(ctx, ada, ifMatch, change, bearer))
	stale := must(api.PatchUserWithResponse(ctx, ada, ifMatch, change, bearer))

	pages := [][]string{}
	limit := 2
	for params := (oapi.ListUsersParams{Limit: &limit}); ; {
		page := must(api.ListUsersWithResponse(ctx, &params, bearer))
		names := []string{}
		for _, one := range *page.JSON200 {
			names = append(names, one.Name)
		}
		pages = append(pages, names)
		following := after.FindStringSubmatch(page.HTTPResponse.Header.Get("Link"))
		if following == nil {
			break
		}
		id := must(strconv.ParseInt(following[1], 10, 64))
		params.After = &id
	}

	deleted := must(api.DeleteUserWithResponse(ctx, ada, nil, bearer))
	gone := must(api.ReadUserWithResponse(ctx, ada, nil, bearer))
	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"greeting":  string(greeting.Body),
		"wrong":     []any{wrong.StatusCode(), string(wrong.Body)},
		"noNote":    []any{noNote.StatusCode(), string(noNote.Body)},
		"note":      note.JSON200.Title,
		"protected": string(protected.Body),
		"created":   []any{created.StatusCode(), created.JSON201.Email, tag},
		"taken":     []any{taken.StatusCode(), string(taken.Body)},
		"read":      []any{read.StatusCode(), read.JSON200.Name, read.HTTPResponse.Header.Get("ETag")},
		"patched":   []any{patched.StatusCode(), patched.JSON200.Name, patched.HTTPResponse.Header.Get("ETag")},
		"stale":     []any{stale.StatusCode(), string(stale.Body)},
		"pages":     pages,
		"deleted":   []any{deleted.StatusCode(), deleted.JSON200.Name},
		"gone":      []any{gone.StatusCode(), string(gone.Body)},
	}))
}
