// Matches patterns. Reads lines of a pattern and a text in base64. Prints 1 for a match, else 0.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Pattern;

class Match {
  private static String text(String part) {
    return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8);
  }

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split("\t", 2);
      boolean found = Pattern.compile(text(parts[0])).matcher(text(parts[1])).find();
      System.out.println(found ? 1 : 0);
    }
  }
}
