// The journey with the client from openapi-generator for Java's HttpClient. Prints it as JSON.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.ApiResponse;
import org.openapitools.client.api.AccessApi;
import org.openapitools.client.api.UsersApi;
import org.openapitools.client.model.Credentials;
import org.openapitools.client.model.User;
import org.openapitools.client.model.UserChange;
import org.openapitools.client.model.UserFields;

class Journey {
  private static String header(ApiResponse<?> response, String name) {
    return response.getHeaders().getOrDefault(name, List.of("")).get(0);
  }

  private static ApiClient client(String url, String authorization) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    if (authorization != null) {
      client.setRequestInterceptor(request -> request.header("Authorization", authorization));
    }
    return client;
  }

  public static void main(String[] args) throws Exception {
    String url = args[0];
    String user = args[1];
    String password = args[2];
    String pair = user + ":" + password;
    String basic = Base64.getEncoder().encodeToString(pair.getBytes(StandardCharsets.UTF_8));
    ApiClient anyone = client(url, null);

    AccessApi access = new AccessApi(anyone);
    Map<String, Object> journey = new LinkedHashMap<>();
    String token = access.issueToken(new Credentials().id(user).pw(password), null).getToken();
    ApiClient bearer = client(url, "Bearer " + token);
    journey.put("protected", new AccessApi(client(url, "Basic " + basic)).greetCaller(null));

    UsersApi users = new UsersApi(bearer);
    UserFields fields = new UserFields().name("Ada").email("ada@example.com");
    ApiResponse<User> created = users.createUserWithHttpInfo(fields, null);
    Long ada = created.getData().getId();
    String tag = header(created, "etag");
    journey.put("created", List.of(created.getStatusCode(), created.getData().getEmail(), tag));
    UserChange change = new UserChange().name("Ada Lovelace");
    ApiResponse<User> patched = users.patchUserWithHttpInfo(ada, change, tag, null, null);
    journey.put(
        "patched",
        List.of(patched.getStatusCode(), patched.getData().getName(), header(patched, "etag")));
    try {
      users.patchUser(ada, change, tag, null, null);
    } catch (ApiException e) {
      journey.put("stale", List.of(e.getCode(), e.getResponseBody()));
    }

    users.createUser(new UserFields().name("Bob").email("bob@example.com"), null);
    ApiResponse<List<User>> page = users.listUsersWithHttpInfo(1, 0L, null, null);
    journey.put("page", List.of(page.getData().get(0).getName(), header(page, "link")));
    System.out.println(new ObjectMapper().writeValueAsString(journey));
  }
}
